#include "runtime/rank/count.h"

#include "runtime/rank/words.h"

/* Starts the count of a step: the ranks' sum is on its way to the reading of that step. What is
 * wrong with the data is said when its step comes; until then the others hear of some target. */
static int begin_count(struct rank *r, int64_t step, struct error *err)
{
    struct reading *to = &r->of_counts[step % 2];
    struct loader_counts own = {0};
    struct error bad = {0};
    if (trainer_speaks_for_its_rows(r) &&
        loader_count_own_targets(feed_loader(r->feed), step, &own, &bad) != 0) {
        own = (struct loader_counts){.targets = 1};
        if (r->bad_count_step == 0)
            r->bad_count = bad;
        r->bad_count_step = r->bad_count_step == 0 ? step : r->bad_count_step;
    }
    const double counts[NUM_COUNTS] = {(double)own.targets, (double)own.tokens,
                                       (double)own.attended};
    if (words_put(r, step, WORD_TARGETS, counts, NUM_COUNTS, err) != 0 ||
        words_sum(r, WORD_TARGETS, NUM_COUNTS, "counted targets", err) != 0 ||
        store_wait(r->store, err) != 0 ||
        words_send(r, to, 0, &r->words[WORD_TARGETS], NUM_COUNTS, err) != 0)
        return -1;
    return words_sent(r, to, err);
}

static int end_count(struct rank *r, struct step *s, struct error *err)
{
    struct reading *from = &r->of_counts[s->number % 2];
    if (r->bad_count_step == s->number) {
        *err = r->bad_count;
        return -1;
    }
    if (words_arrive(r, from, err) != 0)
        return -1;
    if (from->words[0] == 0.0) {
        words_meet(r);
        return loader_no_targets(feed_loader(r->feed), s->number, err);
    }
    s->dloss = 1.0 / from->words[0];
    s->result.tokens = from->words[1];
    s->result.attended = from->words[2];
    return 0;
}

int count_targets(struct rank *r, struct step *s, struct error *err)
{
    bool ahead = r->late && s->number < r->plan->total_steps;
    if ((!r->late || trainer_is_first(r, s)) && begin_count(r, s->number, err) != 0)
        return -1;
    if (ahead && begin_count(r, s->number + 1, err) != 0)
        return -1;
    return end_count(r, s, err);
}
