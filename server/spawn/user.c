#include "server/spawn/spawn.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define GROUPS_MAX 1024

/* By the system's own list; a number stands for itself in a test build. */
static int look_up(struct spawn_user *out, const char *name, char *why)
{
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", name);
#ifdef SPAWN_NUMERIC_USERS
    if (strspn(name, "0123456789") == strlen(name)) {
        out->uid = out->gid = (uid_t)strtoul(name, NULL, 10);
        return 0;
    }
#endif
    errno = 0;
    const struct passwd *p = getpwnam(name);
    if (!p) {
        snprintf(why, SPAWN_WHY_SIZE, "user %s: %s", name, errno ? strerror(errno) : "unknown");
        return -1;
    }
    out->uid = p->pw_uid;
    out->gid = p->pw_gid;
    out->is_known = true;
    return 0;
}

int spawn_user_check_caller(const struct spawn_conf *conf, char *why)
{
    struct spawn_user caller;
    if (look_up(&caller, conf->caller, why) != 0) {
        return -1;
    }
    if (caller.uid == 0 || getuid() != caller.uid) {
        snprintf(why, SPAWN_WHY_SIZE, "uid %u may not ask; only %s may, and never root",
                 (unsigned)getuid(), conf->caller);
        return -1;
    }
    return 0;
}

static bool is_listed(const struct spawn_conf *conf, const char *name)
{
    for (int i = 0; i < conf->num_users; i++) {
        if (strcmp(conf->users[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_member(const struct spawn_user *user, const char *group)
{
    static gid_t groups[GROUPS_MAX];
    int num = GROUPS_MAX;
    const struct group *g = group[0] && user->is_known ? getgrnam(group) : NULL;
    gid_t wanted = g ? g->gr_gid : 0;
    if (!g || getgrouplist(user->name, user->gid, groups, &num) < 0) {
        return false;
    }
    for (int i = 0; i < num; i++) {
        if (groups[i] == wanted) {
            return true;
        }
    }
    return false;
}

int spawn_user_find(struct spawn_user *out, const struct spawn_conf *conf, const char *name,
                    char *why)
{
    if (look_up(out, name, why) != 0) {
        return -1;
    }
    if (out->uid == 0 || out->gid == 0 || (int64_t)out->uid < conf->min_uid ||
        out->uid == (uid_t)-1 || out->gid == (gid_t)-1) {
        snprintf(why, SPAWN_WHY_SIZE, "user %s (uid %u, gid %u): below uid %lld, or root's", name,
                 (unsigned)out->uid, (unsigned)out->gid, (long long)conf->min_uid);
        return -1;
    }
    if (out->uid == getuid()) {
        snprintf(why, SPAWN_WHY_SIZE, "user %s is tandemd's own", name);
        return -1;
    }
    if (!is_listed(conf, name) && !is_member(out, conf->group)) {
        snprintf(why, SPAWN_WHY_SIZE, "user %s is not among those that the configuration names",
                 name);
        return -1;
    }
    return 0;
}

/* Whose group reads every job's folder, or is root's, isn't just a tenant. */
static int check_groups(const struct spawn_user *user, gid_t caller_group, char *why)
{
    static gid_t groups[GROUPS_MAX];
    int num = getgroups(GROUPS_MAX, groups);
    bool bad = num < 0 || getegid() == caller_group;
    for (int i = 0; i < num; i++) {
        bad |= groups[i] == 0 || groups[i] == caller_group;
    }
    if (bad) {
        snprintf(why, SPAWN_WHY_SIZE, "user %s is in root's or in tandemd's group", user->name);
        return -1;
    }
    return 0;
}

int spawn_user_become(const struct spawn_user *user, gid_t caller_group, char *why)
{
    int rc = user->is_known ? initgroups(user->name, user->gid) : setgroups(0, NULL);
    if (rc != 0 || setresgid(user->gid, user->gid, user->gid) != 0 ||
        check_groups(user, caller_group, why) != 0) {
        if (!why[0]) {
            snprintf(why, SPAWN_WHY_SIZE, "groups of %s: %s", user->name, strerror(errno));
        }
        return -1;
    }
    if (setresuid(user->uid, user->uid, user->uid) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) {
        snprintf(why, SPAWN_WHY_SIZE, "become %s: %s", user->name, strerror(errno));
        return -1;
    }
    if (setuid(0) == 0 || setgid(0) == 0 || geteuid() != user->uid || getuid() != user->uid) {
        snprintf(why, SPAWN_WHY_SIZE, "%s could become root again", user->name);
        return -1;
    }
    return 0;
}
