#include "plan/device_types.h"

#include <string.h>

/* Peaks are dense (no sparsity), of a matrix product; fp32 without TF32, since fp32 here means at
 * least that; fp64 with tensor cores. Bandwidths are one way, of one device.
 *
 * Sources: NVIDIA datasheets of A100 80GB SXM (2021), H100 SXM and H200 SXM (2024), HGX and DGX
 * B200 (2024: the figures of eight, divided), GB200 NVL72 (2024: the figures of 72, divided).
 * Of the cards in PCIe slots: datasheets of A100 40GB and 80GB PCIe (2021), H100 PCIe (2022), H100
 * NVL and H200 NVL (2024), A10, A30, A40, RTX A6000 (2021), L4, L40, L40S (2023); half of what
 * those call "with sparsity". GH200 (2023). GeForce: NVIDIA's white papers of GA102, Ada and RTX
 * Blackwell, tables of bf16 with fp32 accumulation; fp64 of all without fp64 tensor cores is 1/32
 * or 1/64 of fp32. What has no NVLink is alone in its domain: the link is PCIe's.
 *
 * NVLink 3: 600 GB/s both ways, 4: 900, 5: 1800. The latency is what a step of a collective takes,
 * launch and hop, as NCCL's own tuning model has it for NVLink, not the 0.2 us of a switch. cpu:
 * what two processes of a host see of its memory; its peak is measured (tandem-probe). */
#define PCIE_4 32e9, 5e-6
#define PCIE_5 63e9, 5e-6
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
    {"a100-40gb", 40000000000, 19.5e12, 312e12, 19.5e12, 300e9, 3e-6, 1.555e12, 80},
    {"a100-80gb-pcie", 80000000000, 19.5e12, 312e12, 19.5e12, 300e9, 3e-6, 1.935e12, 80},
    {"h100-pcie", 80000000000, 51e12, 756e12, 51e12, 300e9, 3e-6, 2e12, 90},
    {"h100-nvl", 94000000000, 60e12, 835e12, 60e12, 300e9, 3e-6, 3.9e12, 90},
    {"h200-nvl", 141000000000, 60e12, 835e12, 60e12, 450e9, 3e-6, 4.8e12, 90},
    {"gh200", 96000000000, 67e12, 989e12, 67e12, 450e9, 3e-6, 4e12, 90},
    {"a30", 24000000000, 10.3e12, 165e12, 10.3e12, 100e9, 3e-6, 0.933e12, 80},
    {"a10", 24000000000, 31.2e12, 125e12, 0.976e12, PCIE_4, 0.6e12, 86},
    {"a40", 48000000000, 37.4e12, 149.7e12, 0.585e12, 56.25e9, 3e-6, 0.696e12, 86},
    {"rtx-a6000", 48000000000, 38.7e12, 154.8e12, 0.605e12, 56.25e9, 3e-6, 0.768e12, 86},
    {"l4", 24000000000, 30.3e12, 121e12, 0.473e12, PCIE_4, 0.3e12, 89},
    {"l40", 48000000000, 90.5e12, 181.05e12, 1.414e12, PCIE_4, 0.864e12, 89},
    {"l40s", 48000000000, 91.6e12, 362.05e12, 1.431e12, PCIE_4, 0.864e12, 89},
    {"geforce-rtx-3090", 24000000000, 35.6e12, 71e12, 0.556e12, 56.25e9, 3e-6, 0.936e12, 86},
    {"geforce-rtx-4090", 24000000000, 82.6e12, 165.2e12, 1.291e12, PCIE_4, 1.008e12, 89},
    {"geforce-rtx-5090", 32000000000, 104.8e12, 209.5e12, 1.637e12, PCIE_5, 1.792e12, 120},
};

/* Words of names of slower cards, or parts of cards, that are otherwise called like one above. */
static const char *const other_cards[] = {"laptop", "mobile", "mig", "max", "d"};

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

const char *const device_types_names[] = {"cpu",
                                          "a100",
                                          "h100",
                                          "h200",
                                          "b200",
                                          "gb200",
                                          "a100-40gb",
                                          "a100-80gb-pcie",
                                          "h100-pcie",
                                          "h100-nvl",
                                          "h200-nvl",
                                          "gh200",
                                          "a30",
                                          "a10",
                                          "a40",
                                          "rtx-a6000",
                                          "l4",
                                          "l40",
                                          "l40s",
                                          "geforce-rtx-3090",
                                          "geforce-rtx-4090",
                                          "geforce-rtx-5090",
                                          NULL};

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

static bool has_word(const char *name, const char *word, size_t len)
{
    for (; *name; name += strspn(name, "-")) {
        size_t n = strcspn(name, "-");
        if (n == len && strncmp(name, word, n) == 0) {
            return true;
        }
        name += n;
    }
    return false;
}

/* How many words type has, if they all stand in name; else 0. */
static int words_in(const char *name, const char *type)
{
    int num = 0;
    for (; *type; type += strspn(type, "-")) {
        size_t n = strcspn(type, "-");
        if (!has_word(name, type, n)) {
            return 0;
        }
        type += n;
        num++;
    }
    return num;
}

const char *device_types_match(const char *name)
{
    const char *best = NULL;
    int most = 0;
    for (size_t i = 0; i < sizeof other_cards / sizeof *other_cards; i++) {
        if (has_word(name, other_cards[i], strlen(other_cards[i]))) {
            return NULL;
        }
    }
    for (size_t i = 1; i < NUM_TYPES; i++) {
        int num = words_in(name, table[i].name);
        if (num > most) {
            most = num;
            best = table[i].name;
        }
    }
    return best;
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
