/* Microseconds (of CPU time) of place_find and place_fits on clusters of 1,024 to 65,536 devices,
 * half of them taken; growth is shown as ratios. Nothing is asserted.
 *
 *   place_bench [CALLS] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "plan/cluster.h"
#include "plan/place.h"

static const struct {
    const char *name;
    struct place_request r;
} shapes[] = {
    {"1 device", {1, 1, 1, 1, 1, 1, "any", .num_nodes = 0}},
    {"tensor 4", {1, 1, 1, 4, 1, 1, "any", .num_nodes = 0}},
    {"4 x tensor 4", {4, 1, 1, 4, 1, 1, "any", .num_nodes = 0}},
    {"8 stages x tensor 4", {1, 8, 1, 4, 1, 1, "any", .num_nodes = 0}},
    {"128 x tensor 2", {128, 1, 1, 2, 1, 1, "any", .num_nodes = 0}},
    {"8 x tensor 9: no", {8, 1, 1, 9, 1, 1, "any", .num_nodes = 0}},
};
#define NUM_SHAPES (sizeof shapes / sizeof shapes[0])
static const int sizes[] = {1024, 4096, 16384, 65536};
#define NUM_SIZES (sizeof sizes / sizeof sizes[0])

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* DGX nodes of 8 under leaves of 32 nodes. */
static struct fabric *make_fabric(int num_devices)
{
    char text[256];
    struct error err = {0};
    ClusterSpec *spec = NULL;
    struct fabric *f;
    snprintf(text, sizeof text,
             "groups: [{name: n, count: %d, devices: 8, type: h100, nodes_per_leaf: 32, "
             "leaves_per_spine: 8}]",
             num_devices / 8);
    if (cluster_parse("bench", text, strlen(text), &spec, &err) != 0 ||
        fabric_new(&f, spec, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    cluster_spec__free_unpacked(spec, NULL);
    return f;
}

/* Half of the devices, by turns whole nodes and single ones. */
static void take_half(struct free_map *m, int num_devices)
{
    uint64_t x = 12345;
    for (int n = 0; n < num_devices / 8; n++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        int whole = n % 2 == 0, dice = (int)(x >> 33);
        for (int i = 0; i < 8; i++) {
            if (whole ? dice % 2 == 0 : dice >> i & 1) {
                free_map_take(m, n * 8 + i);
            }
        }
    }
}

static void measure(struct free_map *m, int calls, double *find_us, double *fits_us)
{
    int32_t *devices = malloc((size_t)sizes[NUM_SIZES - 1] * sizeof *devices);
    ASSERT(devices);
    for (size_t s = 0; s < NUM_SHAPES; s++) {
        double start = now_us();
        for (int i = 0; i < calls; i++) {
            place_find(m, &shapes[s].r, devices, NULL, NULL);
        }
        find_us[s] = (now_us() - start) / calls;
        start = now_us();
        for (int i = 0; i < calls; i++) {
            place_fits(m, &shapes[s].r);
        }
        fits_us[s] = (now_us() - start) / calls;
    }
    free(devices);
}

/* The 405B job: all of 16,384 devices at once. */
static void measure_large(void)
{
    static const struct place_request jobs[] = {{128, 16, 1, 8, 1, 1, "any", .num_nodes = 0},
                                                {8, 16, 16, 8, 1, 1, "any", .num_nodes = 0}};
    struct fabric *f = make_fabric(16384);
    struct free_map *m = free_map_new(f);
    int32_t *devices = malloc(16384 * sizeof *devices);
    ASSERT(devices);
    for (size_t i = 0; i < 2; i++) {
        double start = now_us();
        ASSERT(place_find(m, &jobs[i], devices, NULL, NULL) == PLACE_OK);
        printf("16,384 ranks (data %d, pipeline %d, context %d, tensor %d): %.2f ms\n",
               jobs[i].data, jobs[i].pipeline, jobs[i].context, jobs[i].tensor,
               (now_us() - start) / 1000);
    }
    free(devices);
    free_map_free(m);
    fabric_free(f);
}

int main(int argc, char **argv)
{
    int calls = argc > 1 ? atoi(argv[1]) : 2000;
    double find_us[NUM_SIZES][NUM_SHAPES], fits_us[NUM_SIZES][NUM_SHAPES];
    for (size_t i = 0; i < NUM_SIZES; i++) {
        struct fabric *f = make_fabric(sizes[i]);
        struct free_map *m = free_map_new(f);
        take_half(m, sizes[i]);
        measure(m, calls, find_us[i], fits_us[i]);
        free_map_free(m);
        fabric_free(f);
    }
    printf("microseconds a call, half of the devices taken; in brackets: times that of 1,024\n");
    printf("%-22s", "devices");
    for (size_t i = 0; i < NUM_SIZES; i++) {
        printf("%18d", sizes[i]);
    }
    for (int which = 0; which < 2; which++) {
        for (size_t s = 0; s < NUM_SHAPES; s++) {
            printf("\n%s %-17s", which ? "fits" : "find", shapes[s].name);
            for (size_t i = 0; i < NUM_SIZES; i++) {
                double us = which ? fits_us[i][s] : find_us[i][s];
                printf("%10.2f (%5.1f)", us, us / (which ? fits_us[0][s] : find_us[0][s]));
            }
        }
    }
    printf("\n");
    measure_large();
    return 0;
}
