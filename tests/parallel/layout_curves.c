/* layout_curves DIR SEED NUM: draws layouts, and for each leaves a job file and the curve that its
 * ranks as threads have (DIR/0.yaml, DIR/0.csv: loss and grad_norm of each step, all digits), for
 * layout_process_test.py to run as processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/fs.h"
#include "layouts.h"

/* As processes they take memory and time to start. */
#define MAX_RANKS 12

struct curves {
    const char *dir;
    uint64_t seed;
    int num;
    struct shape_files files[NUM_SHAPES];
};

static void write_file(const struct curves *c, int idx, const char *ending, const char *text)
{
    char path[512];
    struct error err = {0};
    snprintf(path, sizeof(path), "%s/%d.%s", c->dir, idx, ending);
    if (fs_write_atomic(path, text, strlen(text), 0600, &err) != 0)
        fail_msg("%s", err.text);
}

static void run_layout(const struct curves *c, int idx, const struct layout *l)
{
    struct gang_spec spec = layout_spec(l, &c->files[l->values[FACTOR_SHAPE]]);
    struct buf csv = {0};
    struct gang g = {.plan = gang_plan(&spec)};
    char *job = gang_job_text(&spec);
    gang_run_well(&g);
    buf_puts(&csv, "loss,grad_norm\n");
    for (int64_t i = 0; i < g.num_steps; i++)
        buf_printf(&csv, "%.17g,%.17g\n", g.steps[i].loss, g.steps[i].grad_norm);
    write_file(c, idx, "yaml", job);
    write_file(c, idx, "csv", csv.data);
    print_message("%d: %s\n", idx, layout_words(l));
    free(job);
    buf_free(&csv);
    plan__free_unpacked((Plan *)g.plan, NULL);
}

static void run_drawn(void **state)
{
    struct curves *c = *state;
    for (int i = 0; i < NUM_SHAPES; i++) {
        char dir[256];
        snprintf(dir, sizeof(dir), "%s/%s", c->dir, shapes[i].family);
        assert_int_equal(fs_mkdirs(dir, 0700, NULL), 0);
        shape_write_into(&c->files[i], dir, &shapes[i], NULL, NULL);
    }
    uint64_t next = c->seed * 1000003;
    for (int idx = 0; idx < c->num;) {
        struct layout l = layout_draw(next++);
        int64_t ranks = layout_num_ranks(&l);
        if (ranks > 1 && ranks <= MAX_RANKS)
            run_layout(c, idx++, &l);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: layout_curves DIR SEED NUM\n");
        return 2;
    }
    gang_quiet();
    struct curves c = {.dir = argv[1], .seed = strtoull(argv[2], NULL, 10), .num = atoi(argv[3])};
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(run_drawn, &c)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
