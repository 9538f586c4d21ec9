/* tandem-spawn: the one program of Tandem that has root's rights. tandemd, which has none, asks it
 * to start tandem-node and tandem-probe as the user whom a tenant's work is done for, and to signal
 * what they started. It knows nothing but a configuration file of root's, and does nothing else.
 *
 *   tandem-spawn check USER                                   may USER be had? prints the jobs
 * folder tandem-spawn node  USER JOB ATTEMPT                       becomes tandem-node; ticket on 3
 *   tandem-spawn probe USER                                   becomes tandem-probe
 *   tandem-spawn kill  USER JOB ATTEMPT PID START_TIME SIGNAL prints "NUM PID" of what is left
 *
 * Every function returns 0, or -1 with the reason in why. Nothing is allocated; a process is one
 * request. Installed as root:tandem 4750. */
#ifndef TANDEM_SERVER_SPAWN_SPAWN_H
#define TANDEM_SERVER_SPAWN_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SPAWN_NAME_SIZE 33
#define SPAWN_PATH_SIZE 512
#define SPAWN_USERS_MAX 64
#define SPAWN_WHY_SIZE 1024
#define SPAWN_CONF_MAX_BYTES 65536

/* ---- conf.c: what root allows ---- */

struct spawn_conf {
    char caller[SPAWN_NAME_SIZE]; /* who may ask: tandemd's user */
    int64_t min_uid;              /* lowest that may be had; 1000 unless said otherwise */
    char users[SPAWN_USERS_MAX][SPAWN_NAME_SIZE]; /* who may be had, by name ... */
    int num_users;
    char group[SPAWN_NAME_SIZE];    /* ... or as a member of this group; "" = none */
    char programs[SPAWN_PATH_SIZE]; /* folder of tandem-node and tandem-probe */
    char jobs[SPAWN_PATH_SIZE];     /* DATA_DIR/jobs */
};

/* "KEY VALUE" lines; # begins a comment. Everything that isn't understood is refused. */
int spawn_conf_parse(struct spawn_conf *out, const char *text, size_t len, char *why);
/* The file must be root's, and nobody else may write it. */
int spawn_conf_read(struct spawn_conf *out, const char *path, char *why);
/* A user's or group's name; digits alone only in a test build. */
bool spawn_is_name(const char *text);

/* ---- request.c: what is asked ---- */

enum spawn_verb { SPAWN_CHECK, SPAWN_NODE, SPAWN_PROBE, SPAWN_KILL };

struct spawn_request {
    enum spawn_verb verb;
    const char *user;
    int64_t job, attempt;         /* NODE, KILL */
    int64_t pid, start_time, sig; /* KILL */
};

int spawn_request_parse(struct spawn_request *out, int argc, char *const *argv, char *why);

/* ---- user.c: who it becomes ---- */

struct spawn_user {
    char name[SPAWN_NAME_SIZE];
    uid_t uid;
    gid_t gid;
    bool is_known; /* false: a number of a test build, without groups */
};

/* Is the real user of this process the one that may ask? */
int spawn_user_check_caller(const struct spawn_conf *conf, char *why);
/* Who is meant, if the configuration lets that user be had. */
int spawn_user_find(struct spawn_user *out, const struct spawn_conf *conf, const char *name,
                    char *why);
/* For good: groups, group, user, and no way back. caller_group may not be among the groups. */
int spawn_user_become(const struct spawn_user *user, gid_t caller_group, char *why);

/* ---- folder.c: the job's folder ---- */

/* As root: JOBS/JOB, made if absent, of user and caller_group, setgid 2770. *fd: it. */
int spawn_folder_open(const struct spawn_conf *conf, int64_t job, const struct spawn_user *user,
                      gid_t caller_group, int *fd, char *why);
/* As the user: logs/attempt-A and ckpt in it; *log_fd: node.log, open for appending. */
int spawn_folder_fill(int fd, int64_t attempt, int *log_fd, char *why);

/* ---- run.c ---- */

/* As root: is programs/name root's, and may nobody else change it? path: where it is. */
int spawn_run_check(const struct spawn_conf *conf, const char *name, char path[SPAWN_PATH_SIZE],
                    char *why);
/* Signals, limits, umask as at login; descriptors from first_closed on are closed. */
void spawn_run_clean(unsigned first_closed);
/* The mark of an attempt's processes: TANDEM_ATTEMPT=JOB.ATTEMPT@DATA_DIR. */
void spawn_run_mark(const struct spawn_conf *conf, const struct spawn_request *r, char *out,
                    size_t size);
/* Doesn't return but on failure. mark "": none. */
int spawn_run_exec(const char *path, char *const *argv, char *mark, char *why);

/* ---- kill.c ---- */

/* As the user: signals tandem-node and what it started, and prints what is there. */
int spawn_kill(const struct spawn_conf *conf, const struct spawn_request *r, char *why);

#endif
