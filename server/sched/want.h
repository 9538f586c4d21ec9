/* What a gang wants, apart from its size: the devices that suit it, how many of them have to
 * lie together in a fast domain, and whether all on one node. Jobs that want the same share one;
 * whether a size fits is found out once for all of them. */
#ifndef TANDEM_SERVER_SCHED_WANT_H
#define TANDEM_SERVER_SCHED_WANT_H

#include "plan/place.h"

#define WANT_MAX_FAILS 16
#define WANT_MAX_TRIES 32
#define WANT_FEW 64 /* devices; most wants have many more, or a node's */

/* On the free devices but those of the reservations in mask, num don't fit. */
struct want_fail {
    uint64_t mask;
    int32_t num;
};

/* For a job of that tenant and priority no victims are to be found that make room for num. */
struct want_try {
    int32_t tenant, priority, num;
    bool reclaims;
};

struct want {
    /* The key: owned copies. */
    char *type;
    char **nodes;
    size_t num_nodes;
    bool cpu_only, gpu_only, one_node;
    int64_t mem_bytes; /* a size that some device has, or INT64_MAX */
    int32_t tensor, capability;

    uint64_t *suits; /* a bit for each device */
    int32_t num_suits;
    struct want_fail fails[WANT_MAX_FAILS];
    int32_t num_fails;
    /* Of this pass: */
    struct want_try tries[WANT_MAX_TRIES];
    int32_t num_tries;
    int64_t leaving_stamp;
    int32_t leaving_size;  /* fits once those are gone who leave; at the moment of the stamp */
    int32_t impossible[2]; /* without and with a quota's right: so many devices will never be free
                              together */
    bool is_covered;       /* a reservation looks after each device that suits */
};

struct want_table;

struct want_table *want_table_new(const struct fabric *f);
void want_table_free(struct want_table *t);
/* Forgets all: earlier numbers are no more. */
void want_table_clear(struct want_table *t);
int32_t want_table_num(const struct want_table *t);
/* The number of the want of r. */
int32_t want_table_add(struct want_table *t, const struct place_request *r);
struct want *want_table_get(const struct want_table *t, int32_t want);

static inline bool want_suits(const struct want *w, int32_t device)
{
    return w->suits[device / 64] >> (device % 64) & 1;
}

/* num isn't to be had with the reservations in mask excluded: known from before? */
bool want_has_failed(const struct want *w, uint64_t mask, int32_t num);
void want_failed(struct want *w, uint64_t mask, int32_t num);
bool want_has_tried(const struct want *w, const struct want_try *t);
void want_tried(struct want *w, const struct want_try *t);

#endif
