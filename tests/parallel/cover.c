/* Greedy: each round takes, of some feasible layouts that have an uncovered triple, the one with
 * most of them. Which are looked at comes from a counter-based draw, so each build gives the same
 * list. */
#include "cover.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/rng.h"

#define MAX_VALUES 7
#define MAX_LAYOUTS 4096
#define TRIES 300
#define SEED 3

/* What is to be covered: 1 = some feasible layout has it and none of the list. */
struct triples {
    uint8_t open[NUM_FACTORS][NUM_FACTORS][NUM_FACTORS][MAX_VALUES][MAX_VALUES][MAX_VALUES];
    int64_t num_open;
};

/* The triples of a layout that are in state `from`; they are set to `to`. */
static int64_t visit(struct triples *t, const struct layout *l, uint8_t from, uint8_t to)
{
    const int *v = l->values;
    int64_t num = 0;
    for (int a = 0; a < NUM_FACTORS; a++)
        for (int b = a + 1; b < NUM_FACTORS; b++)
            for (int c = b + 1; c < NUM_FACTORS; c++) {
                uint8_t *state = &t->open[a][b][c][v[a]][v[b]][v[c]];
                num += *state == from;
                if (*state == from)
                    *state = to;
            }
    return num;
}

/* Free factors take all their values behind each of the bound list. */
static void open_all(struct triples *t, const struct layout *bound, int num)
{
    int64_t combinations = 1;
    for (int f = NUM_BOUND_FACTORS; f < NUM_FACTORS; f++)
        combinations *= layout_num_values(f);
    for (int i = 0; i < num; i++)
        for (int64_t k = 0; k < combinations; k++) {
            struct layout l = layout_from_number(layout_number(&bound[i]) + k);
            t->num_open += visit(t, &l, 0, 1);
        }
}

/* The first open triple's place among a, b, c and its values. */
static void find_open(const struct triples *t, int factors[3], int values[3])
{
    for (int a = 0; a < NUM_FACTORS; a++)
        for (int b = a + 1; b < NUM_FACTORS; b++)
            for (int c = b + 1; c < NUM_FACTORS; c++) {
                const uint8_t *open = &t->open[a][b][c][0][0][0];
                const size_t size = MAX_VALUES * MAX_VALUES * MAX_VALUES;
                const uint8_t *at = memchr(open, 1, size);
                if (at == NULL)
                    continue;
                int place = (int)(at - open);
                factors[0] = a;
                factors[1] = b;
                factors[2] = c;
                values[0] = place / (MAX_VALUES * MAX_VALUES);
                values[1] = place / MAX_VALUES % MAX_VALUES;
                values[2] = place % MAX_VALUES;
                return;
            }
    ASSERT(false); /* there is one */
}

/* A feasible layout with the triple; false: this draw has given none. */
static bool draw_with(const struct layout *bound, int num, const int factors[3],
                      const int values[3], uint64_t *next, struct layout *out)
{
    *out = bound[rng_u64(SEED, rng_stream("cover"), (*next)++) % (uint64_t)num];
    for (int f = NUM_BOUND_FACTORS; f < NUM_FACTORS; f++)
        out->values[f] =
            (int)(rng_u64(SEED, rng_stream("cover"), (*next)++) % (uint64_t)layout_num_values(f));
    for (int i = 0; i < 3; i++)
        out->values[factors[i]] = values[i];
    return layout_is_feasible(out);
}

static struct layout best_with(struct triples *t, const struct layout *bound, int num,
                               uint64_t *next)
{
    int factors[3], values[3];
    struct layout best = {{0}};
    int64_t most = 0;
    find_open(t, factors, values);
    for (int found = 0; found < TRIES;) {
        struct layout l;
        if (!draw_with(bound, num, factors, values, next, &l))
            continue;
        found++;
        int64_t covers = visit(t, &l, 1, 1);
        if (covers > most) {
            most = covers;
            best = l;
        }
    }
    return best;
}

void cover_build(struct cover *out)
{
    int num_bound;
    struct layout *bound = layout_list_bound(&num_bound);
    struct triples *t = calloc(1, sizeof(*t));
    *out = (struct cover){.layouts = malloc(MAX_LAYOUTS * sizeof(*out->layouts))};
    ASSERT(t && out->layouts);
    open_all(t, bound, num_bound);
    uint64_t next = 0;
    while (t->num_open > 0) {
        ASSERT(out->num < MAX_LAYOUTS);
        struct layout best = best_with(t, bound, num_bound, &next);
        t->num_open -= visit(t, &best, 1, 2);
        out->layouts[out->num++] = best;
    }
    free(t);
    free(bound);
}

void cover_free(struct cover *c)
{
    free(c->layouts);
    *c = (struct cover){0};
}

int64_t cover_count(const struct layout *layouts, int num)
{
    struct triples *t = calloc(1, sizeof(*t));
    int64_t count = 0;
    ASSERT(t);
    for (int i = 0; i < num; i++)
        count += visit(t, &layouts[i], 0, 1);
    free(t);
    return count;
}
