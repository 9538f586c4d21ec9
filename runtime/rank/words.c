#include "runtime/rank/words.h"

#include <string.h>

#include "plan/memory.h"

_Static_assert(WORD_RANKS <= MEMORY_WORDS, "the plan counts the words of a step");

/* Said, step readings and readings of counts by turns, and what is got at once. */
#define NUM_SETS 7
_Static_assert(NUM_SETS == MEMORY_WORD_SETS, "the plan counts them on the host, too");

static int open_reading(struct rank *r, struct reading *out, double *words, struct error *err)
{
    out->words = words;
    return r->dev->ops->event_new(r->dev, &out->arrived, err);
}

int words_open(struct rank *r, struct error *err)
{
    size_t num = WORD_RANKS + (size_t)r->axes.num_ranks;
    size_t bytes = num * sizeof(*r->words);
    r->words = arenas_take(r->arenas, ARENA_WORDS, bytes, true, err);
    double *sets = arenas_take(r->arenas, ARENA_HOST, NUM_SETS * bytes, false, err);
    if (r->words == NULL || sets == NULL)
        return -1;
    for (size_t i = 0; i < 2; i++) {
        r->said[i] = sets + i * num;
        if (open_reading(r, &r->of_steps[i], sets + (2 + i) * num, err) != 0 ||
            open_reading(r, &r->of_counts[i], sets + (4 + i) * num, err) != 0)
            return -1;
    }
    return open_reading(r, &r->at_once, sets + 6 * num, err);
}

void words_close(struct rank *r)
{
    struct reading *all[] = {&r->of_steps[0], &r->of_steps[1], &r->of_counts[0], &r->of_counts[1],
                             &r->at_once};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (all[i]->arrived != NULL)
            r->dev->ops->event_free(r->dev, all[i]->arrived);
}

int words_put(struct rank *r, int64_t step, enum word first, const double *values, int64_t n,
              struct error *err)
{
    double *said = &r->said[step % 2][first];
    size_t bytes = (size_t)n * sizeof(*values);
    memcpy(said, values, bytes);
    return r->dev->ops->copy(r->dev, r->compute, &r->words[first], said, bytes, COPY_TO_DEVICE,
                             err);
}

int words_clear(struct rank *r, enum word first, int64_t n, struct error *err)
{
    return r->dev->ops->zero(r->dev, r->compute, &r->words[first], (size_t)n * sizeof(*r->words),
                             err);
}

int words_sum(struct rank *r, enum word first, int64_t n, const char *what, struct error *err)
{
    return store_reduce_words(r->store, &r->words[first], n, what, err);
}

int words_send(struct rank *r, struct reading *to, int64_t at, const double *from, int64_t n,
               struct error *err)
{
    return r->dev->ops->copy(r->dev, r->compute, &to->words[at], from, (size_t)n * sizeof(*from),
                             COPY_TO_HOST, err);
}

int words_sent(struct rank *r, struct reading *to, struct error *err)
{
    return r->dev->ops->event_record(r->dev, to->arrived, r->compute, err);
}

int words_arrive(struct rank *r, struct reading *from, struct error *err)
{
    return r->dev->ops->event_sync(r->dev, from->arrived, err);
}

int words_get(struct rank *r, enum word first, double *values, int64_t n, struct error *err)
{
    struct reading *reading = &r->at_once;
    if (words_send(r, reading, 0, &r->words[first], n, err) != 0 ||
        words_sent(r, reading, err) != 0 || words_arrive(r, reading, err) != 0)
        return -1;
    memcpy(values, reading->words, (size_t)n * sizeof(*values));
    return 0;
}

/* One more sum: no rank is in it before it has read the last. */
void words_meet(struct rank *r)
{
    double sum;
    struct error err;
    if (r->axes.world != NULL && words_sum(r, WORD_SCRATCH, 1, "what all have read", &err) == 0 &&
        store_wait(r->store, &err) == 0)
        words_get(r, WORD_SCRATCH, &sum, 1, &err);
}
