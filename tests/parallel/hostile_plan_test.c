/* A rank obeys its plan, so a plan that was changed on its way must not lead it out of its memory:
 * good plans of several layouts with one to three of their numbers, texts and parts changed are
 * given to whole gangs. Each either trains or is refused with words. TANDEM_SEED, TANDEM_CASES. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "gang.h"
#include "tests/effort.h"

#define CASE_SECONDS 60
#define SHARED_MAX ((int64_t)256 << 20)

static const struct gang_spec bases[] = {
    {.golden = &golden_tiny, .steps = 1},
    {.golden = &golden_tiny, .steps = 1, .data = 2, .zero_stage = 3},
    {.golden = &golden_tied, .steps = 1, .tensor = 2, .sequence_parallel = true},
    {.golden = &golden_gpt2, .steps = 1, .data = 2, .zero_stage = 1},
    {.golden = &golden_tied,
     .steps = 1,
     .data = 2,
     .zero_stage = 2,
     .checkpoint = "interval: 1, async: true, export_at_end: false"},
};

struct source {
    uint64_t seed, next;
    char what[512]; /* was changed */
};

static uint64_t draw(struct source *s, uint64_t below)
{
    return rng_u64(s->seed, rng_stream("hostile"), s->next++) % below;
}

static void say(struct source *s, const char *message, const char *field, int64_t value)
{
    size_t used = strlen(s->what);
    snprintf(s->what + used, sizeof(s->what) - used, " %s.%s=%lld", message, field,
             (long long)value);
}

static int64_t strange(struct source *s, int64_t now)
{
    const int64_t values[] = {0,
                              -1,
                              1,
                              2,
                              3,
                              7,
                              now + 1,
                              now - 1,
                              now * 2,
                              now / 2,
                              -now,
                              INT32_MAX,
                              (int64_t)INT32_MAX + 1,
                              INT32_MIN,
                              INT64_MAX,
                              INT64_MIN,
                              (int64_t)1 << 40,
                              now ^ (int64_t)(1ULL << draw(s, 40))};
    return values[draw(s, sizeof(values) / sizeof(values[0]))];
}

static size_t size_of(const ProtobufCFieldDescriptor *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_ENUM:
        return 4;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    default:
        return 0;
    }
}

static void change_number(struct source *s, const char *message, const ProtobufCFieldDescriptor *f,
                          void *at)
{
    int64_t now = 0;
    size_t size = size_of(f);
    if (f->type == PROTOBUF_C_TYPE_DOUBLE) {
        static const double values[] = {0.0, -1.0, 1e300, -0.5, NAN, INFINITY, 1e-300};
        double value = values[draw(s, 7)];
        memcpy(at, &value, sizeof(value));
        say(s, message, f->name, (int64_t)(value > -1e9 && value < 1e9 ? value : 1e9));
        return;
    }
    if (size == 4) {
        int32_t half;
        memcpy(&half, at, 4);
        now = half;
    } else if (size == 8) {
        memcpy(&now, at, 8);
    }
    int64_t value = strange(s, now);
    if (f->type == PROTOBUF_C_TYPE_BOOL)
        value &= 1;
    say(s, message, f->name, value);
    int32_t half = (int32_t)value;
    protobuf_c_boolean bit = value != 0;
    memcpy(at, size == 8 ? (void *)&value : size == 4 ? (void *)&half : (void *)&bit, size);
}

static void change_field(struct source *s, ProtobufCMessage *m, const ProtobufCFieldDescriptor *f);

/* Somewhere in m: one of its fields, or in what lies below. */
static void change(struct source *s, ProtobufCMessage *m)
{
    unsigned num = m->descriptor->n_fields;
    const ProtobufCFieldDescriptor *f = NULL;
    /* Rather a list or a part than a number: there is more below it. */
    for (int i = 0; num > 0 && i < 3; i++) {
        f = &m->descriptor->fields[draw(s, num)];
        if (f->type == PROTOBUF_C_TYPE_MESSAGE || f->label == PROTOBUF_C_LABEL_REPEATED)
            break;
    }
    if (f != NULL)
        change_field(s, m, f);
}

static void change_list(struct source *s, ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    size_t *num = (size_t *)((char *)m + f->quantifier_offset), size = size_of(f);
    char **list = (char **)((char *)m + f->offset);
    if (*num == 0)
        return;
    size_t i = draw(s, *num);
    uint64_t way = draw(s, 8);
    bool messages = f->type == PROTOBUF_C_TYPE_MESSAGE;
    if (way == 0 && size > 0) {
        say(s, m->descriptor->short_name, f->name, (int64_t)*num - 1);
        (*num)--;
    } else if (way == 0 && messages) {
        say(s, m->descriptor->short_name, f->name, (int64_t)*num - 1);
        protobuf_c_message_free_unpacked(((ProtobufCMessage **)*list)[--*num], NULL);
    } else if (way == 1 && messages) {
        size_t j = draw(s, *num);
        ProtobufCMessage **items = (ProtobufCMessage **)*list, *item = items[i];
        say(s, m->descriptor->short_name, "exchanged", (int64_t)i);
        items[i] = items[j];
        items[j] = item;
    } else if (messages) {
        change(s, ((ProtobufCMessage **)*list)[i]);
    } else if (size > 0) {
        change_number(s, m->descriptor->short_name, f, *list + i * size);
    }
}

static void change_field(struct source *s, ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    const char *name = m->descriptor->short_name;
    char *at = (char *)m + f->offset;
    if (f->label == PROTOBUF_C_LABEL_REPEATED) {
        change_list(s, m, f);
        return;
    }
    bool in_choice = (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0;
    if (in_choice && *(uint32_t *)((char *)m + f->quantifier_offset) != f->id)
        return;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        ProtobufCMessage **below = (ProtobufCMessage **)at;
        if (*below == NULL)
            return;
        if (draw(s, 20) > 0 || in_choice) {
            change(s, *below);
            return;
        }
        say(s, name, f->name, 0);
        protobuf_c_message_free_unpacked(*below, NULL);
        *below = NULL;
    } else if (f->type == PROTOBUF_C_TYPE_STRING) {
        char **text = (char **)at;
        if (*text == NULL || *text == f->default_value)
            return;
        say(s, name, f->name, 0);
        if (draw(s, 2) == 0)
            (*text)[0] = '\0';
        else
            snprintf(*text, strlen(*text) + 1, "cpu");
    } else if (size_of(f) > 0) {
        change_number(s, name, f, at);
        if (f->label == PROTOBUF_C_LABEL_OPTIONAL && !in_choice && f->quantifier_offset != 0)
            *(protobuf_c_boolean *)((char *)m + f->quantifier_offset) = 1;
    }
}

/* The mesh, stages and memory are what a rank obeys; the rest is looked at less often. */
static void change_plan(struct source *s, Plan *plan)
{
    size_t before = strlen(s->what);
    while (strlen(s->what) == before) {
        uint64_t way = draw(s, 10);
        if (way < 4 && plan->n_stages > 0)
            change(s, &plan->stages[0]->base);
        else if (way < 5 && plan->memory != NULL)
            change(s, &plan->memory->base);
        else if (way < 6 && plan->mesh != NULL)
            change(s, &plan->mesh->base);
        else
            change(s, &plan->base);
    }
}

static Plan *copy_of(const Plan *plan)
{
    size_t len = plan__get_packed_size(plan);
    uint8_t *bytes = malloc(len + 1);
    assert_non_null(bytes);
    plan__pack(plan, bytes);
    Plan *copy = plan__unpack(NULL, len, bytes);
    assert_non_null(copy);
    free(bytes);
    return copy;
}

/* A gang that a host could start at all, with an end in sight. */
static bool can_be_run(const Plan *plan)
{
    if (plan->mesh == NULL || plan->memory == NULL || plan->mesh->num_ranks < 1 ||
        plan->mesh->num_ranks > 8 || plan->memory->shared_bytes < 0 ||
        plan->memory->shared_bytes > SHARED_MAX || plan->threads_per_rank > 4)
        return false;
    if (plan->model != NULL && plan->model->config != NULL &&
        (plan->model->config->num_hidden_layers > 64 || plan->model->config->vocab_size > 65536 ||
         plan->model->config->hidden_size > 4096))
        return false;
    return true;
}

struct count {
    int refused, trained; /* ranks */
};

static void run_plan(const Plan *plan, const struct source *s, struct count *count)
{
    if (effort_is_set("TANDEM_VERBOSE"))
        fprintf(stderr, "TANDEM_SEED=%llu:%s\n", (unsigned long long)s->seed, s->what);
    if (!can_be_run(plan))
        return;
    struct gang g = {.plan = plan, .deadline_ms = 500, .stop_step = 1};
    alarm(CASE_SECONDS);
    gang_run(&g);
    alarm(0);
    for (int i = 0; i < plan->mesh->num_ranks; i++) {
        const struct gang_rank *r = &g.ranks[i];
        if (effort_is_set("TANDEM_VERBOSE") && r->rc != 0)
            fprintf(stderr, "    rank %d: %s\n", i, r->err.text);
        if (r->rc != 0 && r->err.text[0] == '\0')
            fail_msg("TANDEM_SEED=%llu:%s: refused without a word", (unsigned long long)s->seed,
                     s->what);
        *(r->rc != 0 ? &count->refused : &count->trained) += 1;
    }
}

static void run_case(const Plan *good, uint64_t seed, struct count *count)
{
    struct source s = {.seed = seed};
    Plan *plan = copy_of(good);
    for (uint64_t n = 1 + draw(&s, 3); n > 0; n--)
        change_plan(&s, plan);
    run_plan(plan, &s, count);
    plan__free_unpacked(plan, NULL);
}

/* Never a crash, a hang or a write outside: what isn't refused runs in its own memory. */
static void a_changed_plan_is_obeyed_or_refused(void **state)
{
    (void)state;
    const char *seed_text = getenv("TANDEM_SEED"), *cases = getenv("TANDEM_CASES");
    uint64_t seed = seed_text != NULL ? strtoull(seed_text, NULL, 10) : 1;
    const int num_bases = (int)(sizeof(bases) / sizeof(bases[0]));
    int num = cases != NULL ? atoi(cases) : effort(5000, 150, 25);
    struct count count = {0};
    for (int i = 0; i < num; i++) {
        int base = (int)((seed + (uint64_t)i) % (uint64_t)num_bases);
        Plan *good = gang_plan(&bases[base]);
        run_case(good, seed + (uint64_t)i, &count);
        plan__free_unpacked(good, NULL);
    }
    print_message("%d changed plans: %d ranks refused, %d trained\n", num, count.refused,
                  count.trained);
}

/* The field at `at`; num: of a list. */
static void drop(const ProtobufCFieldDescriptor *f, void *at, size_t *num)
{
    void **items = num != NULL ? *(void ***)at : at;
    size_t count = num != NULL ? *num : 1;
    for (size_t i = 0; i < count; i++) {
        if (f->type == PROTOBUF_C_TYPE_MESSAGE)
            protobuf_c_message_free_unpacked(items[i], NULL);
        else if (f->type == PROTOBUF_C_TYPE_STRING)
            free(items[i]);
    }
    if (num != NULL)
        *num = 0;
    else
        *(const void **)at = f->default_value;
}

/* Takes away part number *left of m, counted through all that lies below it: a message, a text, the
 * items of a list. *left < 0 = done. */
static void take_away(struct source *s, ProtobufCMessage *m, int *left)
{
    for (unsigned i = 0; i < m->descriptor->n_fields && *left >= 0; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        void *at = (char *)m + f->offset;
        bool many = f->label == PROTOBUF_C_LABEL_REPEATED;
        bool message = f->type == PROTOBUF_C_TYPE_MESSAGE;
        size_t *num = many ? (size_t *)((char *)m + f->quantifier_offset) : NULL;
        if ((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 &&
            *(uint32_t *)((char *)m + f->quantifier_offset) != f->id)
            continue;
        if (many ? *num == 0
                 : (!message && f->type != PROTOBUF_C_TYPE_STRING) || *(void **)at == NULL ||
                       *(void **)at == f->default_value)
            continue;
        if ((*left)-- == 0) {
            say(s, m->descriptor->short_name, f->name, 0);
            drop(f, at, num);
            return;
        }
        if (message)
            take_away(s, many ? (*(ProtobufCMessage ***)at)[0] : *(ProtobufCMessage **)at, left);
    }
}

/* Each part of a plan is missed once (a sample: some of them). */
static void a_plan_that_lacks_a_part_is_obeyed_or_refused(void **state)
{
    struct count count = {0};
    int part = 0;
    (void)state;
    for (int base = 1; base < 3; base++) {
        Plan *good = gang_plan(&bases[base]);
        for (part = 0;; part += effort(1, 1, 4)) {
            struct source s = {0};
            int left = part;
            Plan *plan = copy_of(good);
            take_away(&s, &plan->base, &left);
            if (left < 0)
                run_plan(plan, &s, &count);
            plan__free_unpacked(plan, NULL);
            if (left >= 0)
                break;
        }
        plan__free_unpacked(good, NULL);
    }
    print_message("%d parts: %d ranks refused, %d trained\n", part, count.refused, count.trained);
    assert_true(part > 50 && count.refused > 5 && count.trained > 5);
}

int main(void)
{
    setenv("TANDEM_LOG", "error", 0);
    gang_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_that_lacks_a_part_is_obeyed_or_refused),
        cmocka_unit_test(a_changed_plan_is_obeyed_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
