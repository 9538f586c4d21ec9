/* Stands in for tandem-node and tandem-probe: says what it was started with, one word and value a
 * line, then does what descriptor 3 says: "wait" = leaves a child in a session of its own and
 * waits, anything else = leaves. */
#include <dirent.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static void say_ids(void)
{
    uid_t r, e, s;
    gid_t rg, eg, sg, groups[64];
    getresuid(&r, &e, &s);
    getresgid(&rg, &eg, &sg);
    printf("uids %u %u %u\n", r, e, s);
    printf("gids %u %u %u\n", rg, eg, sg);
    printf("groups %d\n", getgroups(64, groups));
    printf("no_new_privs %d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
}

static void say_process(int argc, char **argv)
{
    char cwd[4096];
    sigset_t mask;
    struct rlimit core;
    int blocked = 0, ignored = 0;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int sig = 1; sig < NSIG; sig++) {
        struct sigaction a;
        blocked += sigismember(&mask, sig) == 1;
        ignored += sigaction(sig, NULL, &a) == 0 && a.sa_handler == SIG_IGN;
    }
    getrlimit(RLIMIT_CORE, &core);
    mode_t mode = umask(077);
    printf("cwd %s\numask %o\nblocked %d\nignored %d\ncore %llu\n",
           getcwd(cwd, sizeof cwd) ? cwd : "?", (unsigned)mode, blocked, ignored,
           (unsigned long long)core.rlim_max);
    for (int i = 1; i < argc; i++) {
        printf("arg %s\n", argv[i]);
    }
    for (char **e = environ; *e; e++) {
        printf("env %s\n", *e);
    }
}

static void say_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] != '.' && atoi(e->d_name) != dirfd(d)) {
            printf("fd %s\n", e->d_name);
        }
    }
    if (d) {
        closedir(d);
    }
}

int main(int argc, char **argv)
{
    char word[16] = "";
    say_ids();
    say_process(argc, argv);
    say_descriptors();
    fflush(stdout);
    if (read(3, word, sizeof word - 1) < 0 || strncmp(word, "wait", 4) != 0) {
        return 0;
    }
    if (fork() == 0) {
        setsid();
    }
    for (;;) {
        pause();
    }
}
