/* server/probing with the real tandem-probe behind a script that keeps every reply: how often is it
 * started, and how often does it read? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <dirent.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/rng.h"
#include "proto/text.h"
#include "server/allowed.h"
#include "server/msg.h"
#include "server/probe_cache.h"
#include "server/probing.h"
#include "tests/deadline.h"

#define TINY TANDEM_SOURCE_DIR "/tests/golden/llama-tiny"
/* A reply that says no more than "unchanged". */
#define SHORT_BYTES 16

static char tmp[64], data_path[128], replies[128], held_path[128], hangs_path[128];
static struct mailbox *back;
static struct probing *probing;

static void put(const char *path, const char *text, mode_t mode)
{
    struct error err = {0};
    if (fs_write_atomic(path, text, strlen(text), mode, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

/* The probe doesn't rely on the times of a file that was changed a moment ago. */
static void let_it_age(void)
{
    struct stat st;
    assert_int_equal(stat(data_path, &st), 0);
    int64_t changed_us = (int64_t)st.st_ctim.tv_sec * 1000000 + st.st_ctim.tv_nsec / 1000;
    while (clock_wall_us() < changed_us + 150000) {
        clock_sleep_ms(5);
    }
}

static int setup(void **state)
{
    (void)state;
    char program[128], script[1400];
    struct error err = {0};
    snprintf(tmp, sizeof tmp, "/tmp/probing_test.XXXXXX");
    assert_non_null(mkdtemp(tmp));
    snprintf(replies, sizeof replies, "%s/replies", tmp);
    snprintf(data_path, sizeof data_path, "%s/data.txt", tmp);
    snprintf(held_path, sizeof held_path, "%s/held", tmp);
    snprintf(hangs_path, sizeof hangs_path, "%s/hangs", tmp);
    snprintf(program, sizeof program, "%s/tandem-probe", tmp);
    assert_int_equal(mkdir(replies, 0700), 0);
    snprintf(script, sizeof script,
             "#!/bin/sh\ncat > %s/in.$$\n"
             "grep -q tenant-that-hangs %s/in.$$ && : > %s && exec sleep 1000\n"
             "while [ -e %s ]; do sleep 0.01; done\n"
             "%s/tandem-probe < %s/in.$$ > %s/$$ && cat %s/$$\n",
             tmp, tmp, hangs_path, held_path, TANDEM_BIN_DIR, tmp, replies, replies);
    put(program, script, 0755);
    put(data_path, "some text to train on", 0644);
    let_it_age();
    assert_int_equal(mailbox_new(&back), 0);
    assert_int_equal(probing_new(&probing, tmp, back, &err), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    probing_free(probing);
    probing = NULL;
    mail_free_chain(mailbox_take(back, 0));
    mailbox_free(back);
    assert_int_equal(fs_remove_tree(tmp, NULL), 0);
    return 0;
}

/* No probe goes on from here, however long it takes to post; until let_probes_go. */
static void hold_probes(void)
{
    put(held_path, "", 0600);
}

static void let_probes_go(void)
{
    assert_int_equal(unlink(held_path), 0);
}

/* Processes so far, and those of them that read model and data. */
static void count(int *started, int *read)
{
    DIR *d = opendir(replies);
    assert_non_null(d);
    *started = *read = 0;
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] != '.') {
            assert_int_equal(fstatat(dirfd(d), e->d_name, &st, 0), 0);
            ++*started;
            *read += st.st_size > SHORT_BYTES;
        }
    }
    closedir(d);
}

static int then(void *controller, struct mail *m, struct error *err)
{
    (void)controller;
    (void)m;
    (void)err;
    return 0;
}

static void post(Roots *roots)
{
    ProbeRequest *r = msg_new(&probe_request__descriptor);
    r->model = msg_new(&model_spec__descriptor);
    msg_text(&r->model->path, TINY);
    SourceSpec *source = msg_new(&source_spec__descriptor);
    msg_text(&source->path, data_path);
    msg_text(&source->format, "text");
    msg_push(&r->sources, &r->n_sources, source);
    r->roots = roots;
    probing_post(probing, probe_mail_new(r, NULL, NULL, then));
}

static int work(struct probe_mail *m)
{
    assert_non_null(m->reply);
    if (m->request->n_sources == 0) {
        return error_set(&m->error, ERR_FAILED_PRECONDITION, "the work failed");
    }
    m->result = &((ProbeReply *)text_clone(&m->reply->base))->base;
    return 0;
}

/* What has come back. One look may find nothing: the mail was there before its own wake. */
static struct mailbox_node *take_some(void)
{
    struct mailbox_node *chain = NULL;
    WAIT_UNTIL((chain = mailbox_take(back, 1000)) != NULL, "an answer");
    return chain;
}

static struct probe_mail *take_worked(size_t num_sources)
{
    ProbeRequest *r = msg_new(&probe_request__descriptor);
    r->model = msg_new(&model_spec__descriptor);
    msg_text(&r->model->path, TINY);
    if (num_sources > 0) {
        SourceSpec *source = msg_new(&source_spec__descriptor);
        msg_text(&source->path, data_path);
        msg_text(&source->format, "text");
        msg_push(&r->sources, &r->n_sources, source);
    }
    struct probe_mail *m = probe_mail_new(r, NULL, NULL, then);
    m->work = work;
    probing_post(probing, m);
    struct mailbox_node *answer = take_some();
    assert_ptr_equal(answer, &m->mail.node);
    return m;
}

/* What takes long is done on the probe's thread: the owner finds it with the reply, or the error.
 */
static void work_is_done_before_the_owner_hears_of_it(void **state)
{
    (void)state;
    struct probe_mail *m = take_worked(1);
    assert_true(m->reply && m->result);
    assert_int_equal(((ProbeReply *)m->result)->n_sources, 1);
    mail_free(&m->mail);
    m = take_worked(0);
    assert_true(!m->reply && !m->result);
    assert_string_equal(m->error.text, "the work failed");
    mail_free(&m->mail);
}

/* Takes num answers, each of which has to see size bytes of data; size 0: each has to be refused.
 */
static void take(int num, int64_t size)
{
    while (num > 0) {
        struct mailbox_node *chain = take_some();
        for (struct mailbox_node *n = chain; n; n = n->next, num--) {
            const struct probe_mail *m = (const struct probe_mail *)n;
            if (size == 0) {
                assert_null(m->reply);
                assert_int_equal(m->error.code, ERR_PERMISSION_DENIED);
                continue;
            }
            if (!m->reply) {
                fail_msg("%s", m->error.text);
            }
            assert_int_equal(m->reply->sources[0]->size_bytes, size);
            assert_int_equal(m->reply->n_files, 0);
            assert_non_null(m->reply->model);
        }
        mail_free_chain(chain);
    }
    assert_int_equal(num, 0);
}

/* The same model submitted by a hundred at once: whoever was there when the probe started shares
 * its answer. (The first one starts as soon as there is one to ask for.) */
static void many_at_once_are_answered_by_few_probes(void **state)
{
    (void)state;
    int started, read;
    hold_probes();
    for (int i = 0; i < 100; i++) {
        post(NULL);
    }
    let_probes_go();
    take(100, 21);
    count(&started, &read);
    assert_int_equal(read, 1);
    assert_true(started <= 2);
}

/* One after the other, nothing is read again as long as nothing has changed; and a file that has
 * changed is noticed by the very next request. */
static void one_after_the_other_only_what_changed_is_read_again(void **state)
{
    (void)state;
    int started, read;
    for (int i = 0; i < 20; i++) {
        post(NULL);
        take(1, 21);
    }
    count(&started, &read);
    assert_int_equal(started, 20);
    assert_int_equal(read, 1);
    put(data_path, "another text to train on", 0644);
    let_it_age();
    post(NULL);
    take(1, 24);
    count(&started, &read);
    assert_int_equal(read, 2);
    post(NULL);
    take(1, 24);
    count(&started, &read);
    assert_int_equal(read, 2);
    /* Written to in place, to the same length: the times tell. */
    FILE *f = fopen(data_path, "r+");
    assert_non_null(f);
    assert_int_equal(fputs("A", f), 1);
    assert_int_equal(fclose(f), 0);
    post(NULL);
    take(1, 24);
    count(&started, &read);
    assert_int_equal(read, 3);
}

static Roots *roots_of(const char *tenant, const char *a, const char *b)
{
    Roots *r = msg_new(&roots__descriptor);
    const char *dirs[] = {a, b};
    msg_text(&r->tenant, tenant);
    for (int i = 0; i < 2; i++) {
        char *dir = strdup(dirs[i]);
        assert_non_null(dir);
        msg_push(&r->read, &r->n_read, dir);
    }
    return r;
}

/* An answer that one tenant got opens nothing to another. */
static void an_answer_is_kept_for_its_own_tenant_and_roots(void **state)
{
    (void)state;
    int started, read;
    post(roots_of("red", tmp, TINY));
    take(1, 21);
    post(roots_of("blue", tmp, TINY));
    take(1, 21);
    post(roots_of("green", TINY, TINY));
    take(1, 0);
    post(roots_of("red", tmp, tmp));
    take(1, 0);
    post(NULL);
    take(1, 21);
    count(&started, &read);
    assert_int_equal(read, 5);
}

static bool share_a_thread(const char *a, const char *b)
{
    return rng_stream(a) % 4 == rng_stream(b) % 4;
}

/* A tenant whose file server hangs keeps other tenants waiting only as far as they share its
 * thread; and no server that stops. */
static void a_probe_that_hangs_holds_up_few_and_no_end(void **state)
{
    (void)state;
    static const char *const tenants[] = {"red", "blue", "green", "cyan", "pink", "grey"};
    const char *hangs = "tenant-that-hangs";
    int num_free = 0;
    enum error_code code = ERR_OK;
    post(roots_of(hangs, tmp, TINY));
    WAIT_UNTIL(fs_exists(hangs_path), "a probe that hangs");
    for (int i = 0; i < 6; i++) {
        num_free += !share_a_thread(tenants[i], hangs);
        post(roots_of(tenants[i], tmp, TINY));
    }
    assert_true(num_free >= 3);
    take(num_free, 21);
    probing_free(probing);
    probing = NULL;
    struct mailbox_node *chain = mailbox_take(back, 0);
    for (struct mailbox_node *n = chain; n; n = n->next) {
        const struct probe_mail *m = (const struct probe_mail *)n;
        code = strcmp(m->request->roots->tenant, hangs) == 0 ? m->error.code : code;
    }
    mail_free_chain(chain);
    assert_int_equal(code, ERR_UNAVAILABLE); /* its end, not the probe's deadline */
}

static void the_cache_is_bounded_and_forgets_the_oldest(void **state)
{
    (void)state;
    static struct probe_cache cache;
    ProbeReply small = PROBE_REPLY__INIT, large = PROBE_REPLY__INIT;
    for (int i = 0; i < PROBE_CACHE_SIZE + 1; i++) {
        probe_cache_add(&cache, &i, sizeof i, &small, i);
    }
    int first = 0, second = 1, last = PROBE_CACHE_SIZE, none = -1;
    assert_null(probe_cache_find(&cache, &first, sizeof first));
    assert_null(probe_cache_find(&cache, &none, sizeof none));
    assert_non_null(probe_cache_find(&cache, &second, sizeof second));
    assert_int_equal(probe_cache_find(&cache, &last, sizeof last)->checked_ns, last);
    probe_cache_add(&cache, &last, sizeof last, &small, 7);
    assert_int_equal(probe_cache_find(&cache, &last, sizeof last)->checked_ns, 7);
    assert_non_null(probe_cache_find(&cache, &second, sizeof second));
    large.error = malloc(PROBE_CACHE_ANSWER_MAX_BYTES + 1);
    assert_non_null(large.error);
    memset(large.error, 'x', PROBE_CACHE_ANSWER_MAX_BYTES);
    large.error[PROBE_CACHE_ANSWER_MAX_BYTES] = 0;
    probe_cache_add(&cache, &last, sizeof last, &large, 8);
    assert_null(probe_cache_find(&cache, &last, sizeof last));
    free(large.error);
    probe_cache_clear(&cache);
}

/* ---- whose roots ---- */

static void a_tenant_has_its_own_roots_or_the_common_ones(void **state)
{
    (void)state;
    char *red_dirs[] = {"/data/red", "/models"}, *all_dirs[] = {"/models"};
    Roots red = ROOTS__INIT, all = ROOTS__INIT;
    red.tenant = "red";
    red.read = red_dirs;
    red.n_read = 2;
    all.read = all_dirs;
    all.n_read = 1;
    Roots *both[] = {&all, &red};
    struct allowed *a;
    assert_null(allowed_for(NULL, "red"));
    assert_int_equal(allowed_new(&a, NULL, 0, NULL, NULL), 0);
    assert_null(allowed_for(a, "red"));
    allowed_free(a);
    assert_int_equal(allowed_new(&a, both, 2, "/data/server", NULL), 0);
    Roots *r = allowed_for(a, "red");
    assert_int_equal(r->n_read, 2);
    msg_free(r);
    r = allowed_for(a, "blue");
    assert_string_equal(r->tenant, "blue");
    assert_int_equal(r->n_read, 1);
    msg_free(r);
    allowed_free(a);
    assert_int_equal(allowed_new(&a, both + 1, 1, NULL, NULL), 0);
    r = allowed_for(a, "blue");
    assert_non_null(r);
    assert_int_equal(r->n_read, 0);
    msg_free(r);
    allowed_free(a);
}

static void roots_that_can_not_be_are_refused(void **state)
{
    (void)state;
    static const struct {
        char *dir;
        const char *words;
    } cases[] = {{"data", "roots.0.read.0: \"data\""},
                 {"/data/../x", "without \"..\""},
                 {"/data/..", "without \"..\""},
                 {"", "absolute path"}};
    struct allowed *a;
    struct error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Roots r = ROOTS__INIT;
        char *dirs[] = {cases[i].dir};
        r.read = dirs;
        r.n_read = 1;
        Roots *list[] = {&r};
        assert_int_equal(allowed_new(&a, list, 1, NULL, &err), -1);
        assert_non_null(strstr(err.text, cases[i].words));
    }
    Roots one = ROOTS__INIT, two = ROOTS__INIT;
    one.tenant = two.tenant = "red";
    Roots *twice[] = {&one, &two};
    assert_int_equal(allowed_new(&a, twice, 2, NULL, &err), -1);
    assert_non_null(strstr(err.text, "roots.1: tenant red a second time"));
    char *odd[] = {"/data/a..b/..c"};
    one.read = odd;
    one.n_read = 1;
    assert_int_equal(allowed_new(&a, twice, 1, NULL, &err), 0);
    allowed_free(a);
}

/* The first two tenants' names "tN" that share a thread. */
static void two_of_one_thread(char a[16], char b[16])
{
    snprintf(a, 16, "t0");
    for (int i = 1; snprintf(b, 16, "t%d", i), !share_a_thread(a, b);) {
        i++;
    }
}

/* Who asks much waits for itself: a tenant that shares its thread is not behind all of it. */
static void tenants_that_share_a_thread_take_turns(void **state)
{
    (void)state;
    char many[16], one[16], dir[32];
    int before = 0;
    bool found = false;
    two_of_one_thread(many, one);
    hold_probes();
    for (int i = 0; i < 40; i++) {
        snprintf(dir, sizeof dir, "/not/there/%d", i); /* each a request of its own */
        Roots *r = roots_of(many, tmp, TINY);
        char *more = strdup(dir);
        msg_push(&r->read, &r->n_read, more);
        post(r);
    }
    post(roots_of(one, tmp, TINY));
    let_probes_go();
    for (int left = 41; left > 0;) {
        struct mailbox_node *chain = take_some();
        for (struct mailbox_node *n = chain; n; n = n->next, left--) {
            found = found || strcmp(((struct probe_mail *)n)->request->roots->tenant, one) == 0;
            before += !found;
        }
        mail_free_chain(chain);
    }
    assert_true(found);
    assert_true(before <= 2); /* of 40: one that had begun, one whose turn it was */
}

/* What waits is held in memory; so much of it of one tenant, and others aren't refused for it. */
static void what_one_tenant_may_have_waiting_is_bounded(void **state)
{
    (void)state;
    char many[16], one[16];
    int refused = 0, others = 0;
    two_of_one_thread(many, one);
    char *large = malloc(4 << 20);
    assert_non_null(large);
    memset(large, 'x', (4 << 20) - 1);
    large[(4 << 20) - 1] = 0;
    hold_probes();
    for (int i = 0; i < 20; i++) {
        Roots *r = roots_of(many, "/not/there", large);
        post(r);
    }
    post(roots_of(one, tmp, TINY));
    let_probes_go();
    free(large);
    for (int left = 21; left > 0;) {
        struct mailbox_node *chain = take_some();
        for (struct mailbox_node *n = chain; n; n = n->next, left--) {
            const struct probe_mail *m = (const struct probe_mail *)n;
            refused += m->error.code == ERR_RESOURCE_EXHAUSTED;
            others += strcmp(m->request->roots->tenant, one) == 0 && m->reply;
        }
        mail_free_chain(chain);
    }
    assert_true(refused >= 12); /* seven wait, one may have begun */
    assert_int_equal(others, 1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(many_at_once_are_answered_by_few_probes),
        T(one_after_the_other_only_what_changed_is_read_again),
        T(an_answer_is_kept_for_its_own_tenant_and_roots),
        T(a_probe_that_hangs_holds_up_few_and_no_end),
        T(tenants_that_share_a_thread_take_turns),
        T(what_one_tenant_may_have_waiting_is_bounded),
        T(work_is_done_before_the_owner_hears_of_it),
        cmocka_unit_test(the_cache_is_bounded_and_forgets_the_oldest),
        cmocka_unit_test(a_tenant_has_its_own_roots_or_the_common_ones),
        cmocka_unit_test(roots_that_can_not_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
