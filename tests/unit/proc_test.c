/* What the launcher reads in /proc: above all who is dead. The test starts itself with a word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/launch/proc.h"

#define DEADLINE_MS 60000

static void *go_on(void *arg)
{
    for (;;) {
        pause();
    }
    return arg;
}

/* The process's first thread ends, another stays, as one that hangs in a driver does. */
static void linger(void)
{
    pthread_t thread;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (pthread_create(&thread, NULL, go_on, NULL) != 0) {
        exit(1);
    }
    pthread_exit(NULL);
}

static char told_state(pid_t pid)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_true(fread(line, 1, sizeof line - 1, f) > 0);
    fclose(f);
    const char *end = strrchr(line, ')');
    assert_non_null(end);
    return end[2];
}

/* A device is free once nothing of its gang runs any more: ps calls such a process defunct, and it
 * holds all that it had. */
static void a_process_whose_first_thread_has_ended_lives_until_its_last_has(void **state)
{
    (void)state;
    char mark[64]; /* no other build's, that is tested beside */
    snprintf(mark, sizeof mark, "TANDEM_PROC_TEST=%d", (int)getpid());
    char *argv[] = {"proc_test", "linger", NULL}, *envp[] = {mark, NULL};
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, envp), 0);
    for (int64_t end = clock_mono_ms() + DEADLINE_MS; told_state(pid) != 'Z';) {
        assert_true(clock_mono_ms() < end);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    struct proc_stat p;
    int64_t found = 0;
    assert_true(proc_read(pid, &p));
    assert_int_not_equal(p.state, 'Z');
    assert_int_equal(p.pid, pid);
    assert_int_not_equal(p.thread, pid);
    assert_int_equal(proc_descendants(0, p.start_time, mark, &found, 1), 1);
    assert_int_equal(found, pid);

    siginfo_t info;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_true(proc_read(pid, &p));
    assert_int_equal(p.state, 'Z');
    assert_int_equal(p.thread, pid);
    assert_int_equal(proc_descendants(getpid(), p.start_time, mark, &found, 1), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(proc_read(pid, &p));
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "linger") == 0) {
        linger();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_whose_first_thread_has_ended_lives_until_its_last_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
