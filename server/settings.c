#include "server/settings.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "proto/field.h"
#include "proto/text.h"
#include "server/rpc/tls.h"

enum {
    MAX_ROOTS = 256,
    MAX_PATHS = 64, /* of one tenant */
    MAX_RUN_AS = 256,
    MAX_DAYS = 36500,
    MAX_LIMIT = 10000000,
    MAX_SECONDS = 7 * 86400,
    MAX_POINTS = 1000, /* of priority */
    MAX_HOURS = 87600,
};

int settings_read(struct settings *out, const char *path, struct error *err)
{
    ProtobufCMessage *message;
    *out = (struct settings){0};
    if (fs_read_file(path, TEXT_MAX_BYTES, &out->text, &out->len, err) != 0) {
        return -1;
    }
    if (text_parse(path, out->text, out->len, &server_config__descriptor, &message, err) != 0) {
        free(out->text);
        return -1;
    }
    out->values = (ServerConfig *)message;
    out->path = strdup(path);
    ASSERT(out->path);
    return 0;
}

void settings_free(struct settings *c)
{
    if (c->values) {
        server_config__free_unpacked(c->values, NULL);
    }
    free(c->path);
    free(c->text);
    *c = (struct settings){0};
}

int settings_fail(const struct settings *c, struct error *err, const char *field, const char *fmt,
                  ...)
{
    char what[ERROR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    size_t line = text_locate(c->text, c->len, field);
    if (line == 0) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: %s: %s", c->path, field, what);
    }
    return error_set(err, ERR_INVALID_ARGUMENT, "%s:%zu: %s: %s", c->path, line, field, what);
}

/* ---- paths --------------------------------------------------------------------------------- */

static int check_absolute(const struct settings *c, const char *field, const char *path,
                          struct error *err)
{
    if (path[0] != '/') {
        return settings_fail(c, err, field, "%s: the path must be absolute", path);
    }
    if (strlen(path) >= PATH_MAX) {
        return settings_fail(c, err, field, "the path is too long");
    }
    return 0;
}

static int check_kind(const struct settings *c, const char *field, const char *path, bool folder,
                      struct error *err)
{
    struct stat st;
    if (check_absolute(c, field, path, err)) {
        return -1;
    }
    if (stat(path, &st) != 0) {
        return settings_fail(c, err, field, "%s: %s", path, strerror(errno));
    }
    if (folder ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode)) {
        return settings_fail(c, err, field, "%s: not a %s", path, folder ? "folder" : "file");
    }
    return 0;
}

/* ---- sections ------------------------------------------------------------------------------ */

static int check_tls(const struct settings *c, struct error *err)
{
    const TlsConfig *t = c->values->tls;
    struct error why;
    struct tls *tls;
    if (!t) {
        return 0;
    }
    if (!t->cert_file || !t->key_file) {
        return settings_fail(c, err, "tls", "wants both cert_file and key_file");
    }
    if (check_kind(c, "tls.cert_file", t->cert_file, false, err) ||
        check_kind(c, "tls.key_file", t->key_file, false, err) ||
        (t->client_ca_file && check_kind(c, "tls.client_ca_file", t->client_ca_file, false, err))) {
        return -1;
    }
    if (t->require_client_cert && !t->client_ca_file) {
        return settings_fail(c, err, "tls.require_client_cert", "wants client_ca_file");
    }
    const struct tls_files files = {t->cert_file, t->key_file, t->client_ca_file,
                                    t->require_client_cert};
    if (tls_new(&tls, &files, &why)) {
        return settings_fail(c, err, "tls", "%s", why.text);
    }
    tls_free(tls);
    return 0;
}

static int check_paths(const struct settings *c, size_t i, const char *list, char **paths,
                       size_t num, struct error *err)
{
    char field[64];
    if (num > MAX_PATHS) {
        snprintf(field, sizeof field, "roots.%zu.%s", i, list);
        return settings_fail(c, err, field, "at most %d paths, these are %zu", MAX_PATHS, num);
    }
    for (size_t k = 0; k < num; k++) {
        snprintf(field, sizeof field, "roots.%zu.%s.%zu", i, list, k);
        if (check_kind(c, field, paths[k], true, err)) {
            return -1;
        }
    }
    return 0;
}

static bool same_tenant(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static int check_roots(const struct settings *c, struct error *err)
{
    const ServerConfig *v = c->values;
    if (v->n_roots > MAX_ROOTS) {
        return settings_fail(c, err, "roots", "at most %d entries, these are %zu", MAX_ROOTS,
                             v->n_roots);
    }
    for (size_t i = 0; i < v->n_roots; i++) {
        const Roots *r = v->roots[i];
        for (size_t k = 0; k < i; k++) {
            char field[48];
            snprintf(field, sizeof field, "roots.%zu", i);
            if (same_tenant(v->roots[k]->tenant, r->tenant)) {
                return settings_fail(c, err, field, "%s has an entry already (roots.%zu)",
                                     r->tenant ? r->tenant : "who has none of its own", k);
            }
        }
        if (check_paths(c, i, "read", r->read, r->n_read, err) ||
            check_paths(c, i, "write", r->write, r->n_write, err)) {
            return -1;
        }
    }
    return 0;
}

static int check_run_as(const struct settings *c, struct error *err)
{
    const ServerConfig *v = c->values;
    char field[48];
    if (v->n_run_as > MAX_RUN_AS) {
        return settings_fail(c, err, "run_as", "at most %d entries, these are %zu", MAX_RUN_AS,
                             v->n_run_as);
    }
    for (size_t i = 0; i < v->n_run_as; i++) {
        const RunAs *r = v->run_as[i];
        snprintf(field, sizeof field, "run_as.%zu", i);
        if (!r->tenant || !r->tenant[0] || !r->user || !r->user[0]) {
            return settings_fail(c, err, field, "wants both tenant and user");
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(v->run_as[k]->tenant, r->tenant) == 0) {
                return settings_fail(c, err, field, "%s has an entry already (run_as.%zu)",
                                     r->tenant, k);
            }
        }
        const struct passwd *pw = getpwnam(r->user);
        snprintf(field, sizeof field, "run_as.%zu.user", i);
        if (!pw && strspn(r->user, "0123456789") == strlen(r->user)) {
            continue; /* tandem-spawn refuses numbers, where it isn't built for tests */
        }
        if (!pw) {
            return settings_fail(c, err, field, "this host has no user %s", r->user);
        }
        if (pw->pw_uid == 0) {
            return settings_fail(c, err, field, "%s is root: jobs never run as root", r->user);
        }
    }
    return 0;
}

/* Every number of a section lies between 0 and max. */
static int check_numbers(const struct settings *c, const char *section,
                         const ProtobufCMessage *message, int64_t max, struct error *err)
{
    for (unsigned i = 0; message && i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &message->descriptor->fields[i];
        char field[64];
        if (!field_is_set(message, f) || !field_type_is_int(f->type)) {
            continue;
        }
        int64_t value = field_int(f->type, field_at(message, f, 0));
        if (value < 0 || value > max) {
            snprintf(field, sizeof field, "%s.%s", section, f->name);
            return settings_fail(c, err, field, "%lld: wants 0 to %lld", (long long)value,
                                 (long long)max);
        }
    }
    return 0;
}

int settings_check_scheduler(const SchedulerConfig *c, const char **field, struct error *err)
{
    const struct {
        const char *name;
        double value, min, max;
    } bounds[] = {
        {"max_evictions", c->max_evictions, 0, MAX_LIMIT},
        {"min_run_s", c->min_run_s, 0, MAX_SECONDS},
        {"grace_s", c->grace_s, 1, MAX_SECONDS},
        {"aging_per_h", c->aging_per_h, 0, MAX_POINTS},
        {"aging_max", c->aging_max, 0, MAX_POINTS},
        {"fair_share", c->fair_share, 0, MAX_POINTS},
        {"fair_share_half_life_h", c->fair_share_half_life_h, 0, MAX_HOURS},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        /* Not so for a NaN, too. */
        if (!(bounds[i].value >= bounds[i].min && bounds[i].value <= bounds[i].max)) {
            *field = bounds[i].name;
            return error_set(err, ERR_INVALID_ARGUMENT, "%g: wants %g to %.10g", bounds[i].value,
                             bounds[i].min, bounds[i].max);
        }
    }
    return 0;
}

static int check_scheduler(const struct settings *c, struct error *err)
{
    const char *name;
    struct error why;
    char field[64];
    if (!c->values->scheduler || settings_check_scheduler(c->values->scheduler, &name, &why) == 0) {
        return 0;
    }
    snprintf(field, sizeof field, "scheduler.%s", name);
    return settings_fail(c, err, field, "%s", why.text);
}

int settings_check(const struct settings *c, struct error *err)
{
    const ServerConfig *v = c->values;
    if (check_tls(c, err) || check_roots(c, err) || check_run_as(c, err) ||
        check_scheduler(c, err) ||
        check_numbers(c, "limits", v->limits ? &v->limits->base : NULL, MAX_LIMIT, err) ||
        check_numbers(c, "retention", v->retention ? &v->retention->base : NULL, MAX_DAYS, err)) {
        return -1;
    }
    return v->record_dir ? check_absolute(c, "record_dir", v->record_dir, err) : 0;
}
