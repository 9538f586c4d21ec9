#include "plan/device_types.h"

#include <string.h>

/* Peaks are dense (no sparsity), of a matrix product; fp32 without TF32, since fp32 here means at
 * least that; fp64 with tensor cores. Bandwidths are one way, of one device.
 *
 * Sources: NVIDIA datasheets of A100 80GB SXM (2021), H100 SXM and H200 SXM (2024), HGX and DGX
 * B200 (2024: the figures of eight, divided), GB200 NVL72 (2024: the figures of 72, divided).
 * NVLink 3: 600 GB/s both ways, 4: 900, 5: 1800. The latency is what a step of a collective takes,
 * launch and hop, as NCCL's own tuning model has it for NVLink, not the 0.2 us of a switch. cpu:
 * what two processes of a host see of its memory; its peak is measured (tandem-probe). */
static const struct {
    const char *name;
    int64_t mem_bytes;
    double fp32, bf16, fp64;
    double domain_bytes_per_s, domain_latency_s, mem_bytes_per_s;
    int32_t capability;
} table[] = {
    {"cpu", 0, 0, 0, 0, 8e9, 2e-6, 20e9, 0},
    {"a100", 80000000000, 19.5e12, 312e12, 19.5e12, 300e9, 3e-6, 2.039e12, 80},
    {"h100", 80000000000, 67e12, 989e12, 67e12, 450e9, 3e-6, 3.35e12, 90},
    {"h200", 141000000000, 67e12, 989e12, 67e12, 450e9, 3e-6, 4.8e12, 90},
    {"b200", 180000000000, 75e12, 2250e12, 37e12, 900e9, 3e-6, 8e12, 100},
    {"gb200", 186000000000, 80e12, 2500e12, 40e12, 900e9, 3e-6, 8e12, 100},
};

/* Cards from before bf16, by a word of their names, or by two that follow each other. Source:
 * NVIDIA's table of compute capabilities. */
static const struct {
    const char *word, *next;
    int32_t capability;
} older[] = {
    {"k40", NULL, 35},   {"k80", NULL, 37},       {"m40", NULL, 52},
    {"m60", NULL, 52},   {"p100", NULL, 60},      {"p4", NULL, 61},
    {"p40", NULL, 61},   {"quadro", "p4000", 61}, {"quadro", "p5000", 61},
    {"v100", NULL, 70},  {"quadro", "p6000", 61}, {"quadro", "gv100", 70},
    {"v100s", NULL, 70}, {"quadro", "rtx", 75},   {"titan", NULL, 75},
    {"t4", NULL, 75},    {"t4g", NULL, 75},       {"gtx", NULL, 75},
    {"rtx", "2060", 75}, {"rtx", "2070", 75},     {"rtx", "2080", 75},
};

#define NUM_TYPES (sizeof table / sizeof *table)

const char *const device_types_names[] = {"cpu", "a100", "h100", "h200", "b200", "gb200", NULL};

static int find(const char *name)
{
    for (size_t i = 0; i < NUM_TYPES; i++) {
        if (strcmp(table[i].name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

bool device_types_known(const char *name)
{
    return find(name) >= 0;
}

static bool is_word(const char *at, size_t len, const char *word)
{
    return word && strlen(word) == len && strncmp(at, word, len) == 0;
}

static int32_t older_capability(const char *word, size_t len, const char *next, size_t next_len)
{
    for (size_t i = 0; i < sizeof older / sizeof *older; i++) {
        if (is_word(word, len, older[i].word) &&
            (!older[i].next || is_word(next, next_len, older[i].next))) {
            return older[i].capability;
        }
    }
    return 0;
}

int32_t device_types_capability(const char *name)
{
    int known = find(name);
    if (known >= 0) {
        return table[known].capability;
    }
    for (const char *word = name; *word;) {
        size_t len = strcspn(word, "-_.");
        const char *next = word[len] ? word + len + 1 : word + len;
        int32_t capability = older_capability(word, len, next, strcspn(next, "-_."));
        if (capability > 0) {
            return capability;
        }
        word = next;
    }
    return 0;
}

static void fill(protobuf_c_boolean *has, double *field, double value)
{
    if (!*has) {
        *has = 1;
        *field = value;
    }
}

bool device_types_fill(DeviceType *t)
{
    int i = find(t->name);
    bool known = i >= 0;
    if (!t->has_mem_bytes) {
        t->has_mem_bytes = 1;
        t->mem_bytes = known ? table[i].mem_bytes : 0;
    }
    fill(&t->has_peak_flops_fp32, &t->peak_flops_fp32, known ? table[i].fp32 : 0);
    fill(&t->has_peak_flops_bf16, &t->peak_flops_bf16, known ? table[i].bf16 : 0);
    fill(&t->has_peak_flops_fp64, &t->peak_flops_fp64, known ? table[i].fp64 : 0);
    fill(&t->has_domain_bytes_per_s, &t->domain_bytes_per_s,
         known ? table[i].domain_bytes_per_s : 0);
    fill(&t->has_domain_latency_s, &t->domain_latency_s, known ? table[i].domain_latency_s : 0);
    fill(&t->has_mem_bytes_per_s, &t->mem_bytes_per_s, known ? table[i].mem_bytes_per_s : 0);
    if (!t->has_compute_capability) {
        t->has_compute_capability = 1;
        t->compute_capability = device_types_capability(t->name);
    }
    return known;
}
