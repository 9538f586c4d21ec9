/* See spawn.h. One thread, one request, no memory of its own. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/spawn/spawn.h"

#ifndef SPAWN_CONF_PATH
#define SPAWN_CONF_PATH "/etc/tandem/spawn.conf"
#endif
#define EXIT_REFUSED 111

/* A closed standard stream would be the next file that is opened. */
static int fill_streams(char *why)
{
    int fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd < 3) {
        fd = dup(fd);
    }
    if (fd < 0) {
        snprintf(why, SPAWN_WHY_SIZE, "/dev/null can't be opened");
        return -1;
    }
    close(fd);
    return 0;
}

static int run_node(const struct spawn_conf *conf, const struct spawn_request *r,
                    const struct spawn_user *user, char *why)
{
    char path[SPAWN_PATH_SIZE], mark[SPAWN_PATH_SIZE + 64], job[24], attempt[24];
    gid_t group = getgid();
    int folder, log;
    if (fcntl(3, F_GETFD) < 0) {
        snprintf(why, SPAWN_WHY_SIZE, "no ticket on descriptor 3");
        return -1;
    }
    spawn_run_clean(4);
    if (spawn_run_check(conf, "tandem-node", path, why) != 0 ||
        spawn_folder_open(conf, r->job, user, group, &folder, why) != 0 ||
        spawn_user_become(user, group, why) != 0 ||
        spawn_folder_fill(folder, r->attempt, &log, why) != 0) {
        return -1;
    }
    close(folder);
    if (fcntl(log, F_SETFL, O_APPEND) != 0 || dup2(log, 1) != 1 || dup2(log, 2) != 2) {
        snprintf(why, SPAWN_WHY_SIZE, "node.log can't be used");
        return -1;
    }
    close(log);
    snprintf(job, sizeof job, "%lld", (long long)r->job);
    snprintf(attempt, sizeof attempt, "%lld", (long long)r->attempt);
    char *argv[] = {path, (char[]){"--job"}, job, (char[]){"--attempt"}, attempt, NULL};
    spawn_run_mark(conf, r, mark, sizeof mark);
    return spawn_run_exec(path, argv, mark, why);
}

static int run_probe(const struct spawn_conf *conf, const struct spawn_user *user, char *why)
{
    char path[SPAWN_PATH_SIZE];
    spawn_run_clean(3);
    if (spawn_run_check(conf, "tandem-probe", path, why) != 0 ||
        spawn_user_become(user, getgid(), why) != 0) {
        return -1;
    }
    char *argv[] = {path, NULL};
    return spawn_run_exec(path, argv, (char[]){""}, why);
}

static int run_check(const struct spawn_conf *conf, const struct spawn_user *user, char *why)
{
    char path[SPAWN_PATH_SIZE];
    spawn_run_clean(3);
    if (spawn_run_check(conf, "tandem-node", path, why) != 0 ||
        spawn_run_check(conf, "tandem-probe", path, why) != 0 ||
        spawn_user_become(user, getgid(), why) != 0) {
        return -1;
    }
    printf("%s\n", conf->jobs);
    return 0;
}

static int run(int argc, char **argv, char *why)
{
    static struct spawn_conf conf;
    struct spawn_request request;
    struct spawn_user user;
    if (geteuid() != 0) {
        snprintf(why, SPAWN_WHY_SIZE, "not installed as setuid root");
        return -1;
    }
    if (fill_streams(why) != 0 || spawn_conf_read(&conf, SPAWN_CONF_PATH, why) != 0 ||
        spawn_user_check_caller(&conf, why) != 0 ||
        spawn_request_parse(&request, argc, argv, why) != 0 ||
        spawn_user_find(&user, &conf, request.user, why) != 0) {
        return -1;
    }
    switch (request.verb) {
    case SPAWN_NODE:
        return run_node(&conf, &request, &user, why);
    case SPAWN_PROBE:
        return run_probe(&conf, &user, why);
    case SPAWN_KILL:
        spawn_run_clean(3);
        return spawn_user_become(&user, getgid(), why) == 0 ? spawn_kill(&conf, &request, why) : -1;
    case SPAWN_CHECK:
        break;
    }
    return run_check(&conf, &user, why);
}

int main(int argc, char **argv)
{
    char why[SPAWN_WHY_SIZE] = "";
    clearenv();
    if (run(argc, argv, why) != 0) {
        fprintf(stderr, "tandem-spawn: refused: %s\n", why);
        return EXIT_REFUSED;
    }
    return 0;
}
