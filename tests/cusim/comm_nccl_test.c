/* NCCL's communicators on the simulator: what the calls give is what comm_host gives. */
#include "tests/cusim/nccl_ranks.h"

static int call_now(struct device *dev, struct stream *s, device_call_fn fn, const void *args,
                    size_t bytes, struct error *err)
{
    (void)dev;
    (void)s;
    _Alignas(16) char copy[DEVICE_CALL_BYTES];
    memcpy(copy, args, bytes);
    return fn(copy, err);
}

static const struct device_ops now_ops = {.name = "now", .host_call = call_now};
static struct device now_device = {&now_ops};

/* The same numbers on a device and on the host. */
struct twin {
    void *dev, *host, *back;
    size_t bytes;
};

static struct twin twin_new(struct rank *r, size_t n, enum dtype t, int salt)
{
    struct twin x = {.bytes = n * dtype_size(t)};
    x.host = malloc(x.bytes + 8);
    x.back = malloc(x.bytes + 8);
    x.dev = r->dev->ops->alloc(r->dev, x.bytes + 8, MEM_DEVICE);
    NEED(x.host && x.back && x.dev);
    for (size_t i = 0; i < n; i++) {
        float v = (float)((int)(i * 7 + (size_t)(r->rank * 13 + salt)) % 23 - 9) / 8.0f;
        uint32_t bits;
        memcpy(&bits, &v, 4);
        if (t == DTYPE_F32) {
            ((float *)x.host)[i] = v * 1.1f;
        } else if (t == DTYPE_F64) {
            ((double *)x.host)[i] = (double)v / 3.0;
        } else if (t == DTYPE_BF16) {
            ((uint16_t *)x.host)[i] = (uint16_t)(bits >> 16);
        } else {
            ((int32_t *)x.host)[i] = (int32_t)(v * 800);
        }
    }
    NEED(r->dev->ops->copy(r->dev, r->s, x.dev, x.host, x.bytes, COPY_TO_DEVICE, &r->err) == 0);
    NEED(SYNC() == 0);
    return x;
}

static void twin_compare(struct rank *r, struct twin *x)
{
    NEED(r->dev->ops->copy(r->dev, r->s, x->back, x->dev, x->bytes, COPY_TO_HOST, &r->err) == 0);
    NEED(SYNC() == 0);
    NEED(memcmp(x->back, x->host, x->bytes) == 0);
}

static void twin_free(struct rank *r, struct twin *x)
{
    twin_compare(r, x);
    r->dev->ops->free(r->dev, x->dev);
    free(x->host);
    free(x->back);
}

static const enum dtype types[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16, DTYPE_I32};

static void reductions(struct rank *r, struct comm *c, struct comm *h, int64_t n, enum dtype t)
{
    size_t elem = dtype_size(t);
    for (int op = COMM_SUM; op <= COMM_MAX; op++) {
        struct twin x = twin_new(r, (size_t)n, t, op);
        NEED(c->ops->all_reduce(c, r->s, x.dev, n, t, (enum comm_op)op, &r->err) == 0);
        NEED(h->ops->all_reduce(h, NULL, x.host, n, t, (enum comm_op)op, &r->err) == 0);
        twin_free(r, &x);
    }
    struct twin all = twin_new(r, (size_t)(n * c->size), t, 3), part = twin_new(r, (size_t)n, t, 4);
    NEED(c->ops->reduce_scatter(c, r->s, part.dev, all.dev, n, t, &r->err) == 0);
    NEED(h->ops->reduce_scatter(h, NULL, part.host, all.host, n, t, &r->err) == 0);
    twin_compare(r, &all);
    twin_free(r, &part);
    size_t at = (size_t)(c->rank * n) * elem; /* in place */
    NEED(c->ops->reduce_scatter(c, r->s, (char *)all.dev + at, all.dev, n, t, &r->err) == 0);
    NEED(h->ops->reduce_scatter(h, NULL, (char *)all.host + at, all.host, n, t, &r->err) == 0);
    NEED(r->dev->ops->copy(r->dev, r->s, all.back, (char *)all.dev + at, (size_t)n * elem,
                           COPY_TO_HOST, &r->err) == 0);
    NEED(SYNC() == 0);
    NEED(memcmp(all.back, (char *)all.host + at, (size_t)n * elem) == 0);
    r->dev->ops->free(r->dev, all.dev);
    free(all.host);
    free(all.back);
}

static void movements(struct rank *r, struct comm *c, struct comm *h, int64_t n, enum dtype t)
{
    struct twin all = twin_new(r, (size_t)(n * c->size), t, 5), part = twin_new(r, (size_t)n, t, 6);
    NEED(c->ops->all_gather(c, r->s, all.dev, part.dev, n, t, &r->err) == 0);
    NEED(h->ops->all_gather(h, NULL, all.host, part.host, n, t, &r->err) == 0);
    twin_compare(r, &all);
    size_t at = (size_t)(c->rank * n) * dtype_size(t);
    NEED(c->ops->all_gather(c, r->s, all.dev, (char *)all.dev + at, n, t, &r->err) == 0);
    twin_free(r, &all);
    for (int32_t root = 0; root < c->size; root++) {
        struct twin x = twin_new(r, (size_t)n, t, 7);
        NEED(c->ops->broadcast(c, r->s, x.dev, n, t, root, &r->err) == 0);
        NEED(h->ops->broadcast(h, NULL, x.host, n, t, root, &r->err) == 0);
        twin_free(r, &x);
    }
    /* To the right, from the left, and to itself. */
    struct twin in = twin_new(r, (size_t)n, t, 8), own = twin_new(r, (size_t)n, t, 9);
    int32_t right = (c->rank + 1) % c->size, left = (c->rank + c->size - 1) % c->size;
    for (int i = 0; i < 2; i++) {
        struct comm *one = i ? h : c;
        struct stream *s = i ? NULL : r->s;
        NEED(one->ops->group_begin(one, &r->err) == 0);
        NEED(one->ops->send(one, s, i ? part.host : part.dev, n, t, right, &r->err) == 0);
        NEED(one->ops->recv(one, s, i ? in.host : in.dev, n, t, left, &r->err) == 0);
        if (c->size > 1) {
            NEED(one->ops->recv(one, s, i ? own.host : own.dev, n, t, one->rank, &r->err) == 0);
            NEED(one->ops->send(one, s, i ? part.host : part.dev, n, t, one->rank, &r->err) == 0);
        }
        NEED(one->ops->group_end(one, s, &r->err) == 0);
    }
    twin_free(r, &part);
    twin_free(r, &in);
    twin_free(r, &own);
    NEED(c->ops->barrier(c, r->s, &r->err) == 0);
    NEED(h->ops->barrier(h, NULL, &r->err) == 0);
}

static void all_operations(struct rank *r)
{
    static const int64_t sizes[] = {0, 1, 7, 4099};
    int32_t members[MAX_RANKS] = {0, 1, 2, 3};
    struct comm *h;
    rank_open(r);
    NEED(comm_host_comm_new(r->host, &now_device, members, r->num, &h, &r->err) == 0);
    for (size_t i = 0; i < 4 * sizeof sizes / sizeof *sizes; i++) {
        enum dtype t = types[i % 4];
        if (t != DTYPE_I32) {
            reductions(r, r->all, h, sizes[i / 4], t);
        }
        movements(r, r->all, h, sizes[i / 4], t);
    }
    h->ops->free(h);
    rank_close(r);
}

static void every_operation_gives_what_the_host_gives(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        ranks_run_well(1 + i % 4, i, all_operations);
    }
}

/* As of a mesh 2 x 2: its rows, its columns, the rows again, and all. */
static void use_groups(struct rank *r)
{
    struct comm *groups[3];
    double want, back;
    rank_open(r);
    NEED(rank_new_comm(r, r->rank / 2 * 2, 1, 2, "the rows", &groups[0]) == 0);
    NEED(rank_new_comm(r, r->rank % 2, 2, 2, "the columns", &groups[1]) == 0);
    NEED(rank_new_comm(r, r->rank / 2 * 2, 1, 2, "the rows", &groups[2]) == 0);
    for (int round = 0; round < 60; round++) { /* more than there are marks */
        struct comm *c = groups[round % 3];
        struct twin x = twin_new(r, 1, DTYPE_F64, round);
        double mine = r->rank + 1;
        NEED(c->size == 2 && c->rank == (round % 3 == 1 ? r->rank / 2 : r->rank % 2));
        NEED(r->dev->ops->copy(r->dev, r->s, x.dev, &mine, 8, COPY_TO_DEVICE, &r->err) == 0);
        for (int i = 0; i < 3; i++) {
            NEED(c->ops->all_reduce(c, r->s, x.dev, 1, DTYPE_F64, COMM_SUM, &r->err) == 0);
        }
        NEED(r->dev->ops->copy(r->dev, r->s, &back, x.dev, 8, COPY_TO_HOST, &r->err) == 0);
        NEED(SYNC() == 0);
        want = round % 3 == 1 ? 2 * (r->rank % 2) + 4 : 4 * (r->rank / 2) + 3;
        NEED(back == want * 4);
        r->dev->ops->free(r->dev, x.dev);
        free(x.host);
        free(x.back);
    }
    for (int i = 0; i < 3; i++) {
        groups[i]->ops->free(groups[i]);
    }
    rank_close(r);
}

static void groups_of_a_mesh_are_independent(void **state)
{
    (void)state;
    ranks_run_well(4, 0, use_groups);
    ranks_run_well(4, NUM_SCHEDULES - 1, use_groups);
}

static void misuse(struct rank *r)
{
    float *x;
    rank_open(r);
    struct comm *c = r->all;
    x = r->dev->ops->alloc(r->dev, 64, MEM_DEVICE);
    NEED(c->ops->group_end(c, r->s, &r->err) == -1 && strstr(r->err.text, "without one"));
    NEED(c->ops->group_begin(c, &r->err) == 0);
    NEED(c->ops->group_begin(c, &r->err) == -1 && strstr(r->err.text, "inside a group"));
    NEED(c->ops->barrier(c, r->s, &r->err) == -1 && strstr(r->err.text, "only sends"));
    NEED(c->ops->group_end(c, r->s, &r->err) == 0);
    NEED(c->ops->send(c, r->s, x, 1, DTYPE_F32, r->rank, &r->err) == -1);
    NEED(strstr(r->err.text, "sends to itself what it doesn't receive"));
    NEED(c->ops->barrier(c, r->s, &r->err) == 0 && SYNC() == 0);
    r->dev->ops->free(r->dev, x);
    rank_close(r);
}

static void a_group_is_of_messages_and_ends_once(void **state)
{
    (void)state;
    ranks_run_well(2, 1, misuse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_gives_what_the_host_gives),
        cmocka_unit_test(groups_of_a_mesh_are_independent),
        cmocka_unit_test(a_group_is_of_messages_and_ends_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
