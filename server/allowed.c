#include "server/allowed.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "server/msg.h"

struct allowed {
    Roots *const *roots; /* borrowed */
    size_t num;
    const char *private_dir; /* borrowed; may be NULL */
};

/* ".." as a word of a path. */
static bool has_dotdot(const char *path)
{
    for (const char *p = path; (p = strstr(p, "..")); p += 2) {
        if ((p == path || p[-1] == '/') && (p[2] == 0 || p[2] == '/')) {
            return true;
        }
    }
    return false;
}

static int check_dirs(char *const *dirs, size_t num, size_t idx, const char *key, struct error *err)
{
    for (size_t i = 0; i < num; i++) {
        if (dirs[i][0] != '/' || has_dotdot(dirs[i]) || strlen(dirs[i]) >= PATH_MAX) {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "roots.%zu.%s.%zu: \"%.200s\": an absolute path without \"..\" is "
                             "needed",
                             idx, key, i, dirs[i]);
        }
    }
    return 0;
}

static const char *tenant_of(const Roots *r)
{
    return r->tenant ? r->tenant : "";
}

static int check(Roots *const *roots, size_t num, struct error *err)
{
    for (size_t i = 0; i < num; i++) {
        if (check_dirs(roots[i]->read, roots[i]->n_read, i, "read", err) != 0 ||
            check_dirs(roots[i]->write, roots[i]->n_write, i, "write", err) != 0) {
            return -1;
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(tenant_of(roots[i]), tenant_of(roots[k])) == 0) {
                return error_set(err, ERR_INVALID_ARGUMENT, "roots.%zu: %s%s a second time", i,
                                 roots[i]->tenant ? "tenant " : "no tenant", tenant_of(roots[i]));
            }
        }
    }
    return 0;
}

int allowed_new(struct allowed **out, Roots *const *roots, size_t num, const char *private_dir,
                struct error *err)
{
    if (check(roots, num, err) != 0) {
        return -1;
    }
    struct allowed *a = malloc(sizeof *a);
    if (!a) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    *a = (struct allowed){.roots = roots, .num = num, .private_dir = private_dir};
    *out = a;
    return 0;
}

void allowed_free(struct allowed *a)
{
    free(a);
}

static const Roots *find(const struct allowed *a, const char *tenant)
{
    for (size_t i = 0; i < a->num; i++) {
        if (strcmp(tenant_of(a->roots[i]), tenant) == 0) {
            return a->roots[i];
        }
    }
    return NULL;
}

static void copy_dirs(char ***list, size_t *num, char *const *dirs, size_t num_dirs)
{
    for (size_t i = 0; i < num_dirs; i++) {
        char *dir = strdup(dirs[i]);
        ASSERT(dir);
        msg_push(list, num, dir);
    }
}

Roots *allowed_for(const struct allowed *a, const char *tenant)
{
    if (!a || a->num == 0) {
        return NULL;
    }
    const Roots *r = find(a, tenant);
    r = r ? r : find(a, "");
    Roots *copy = msg_new(&roots__descriptor);
    msg_text(&copy->tenant, tenant);
    if (r) {
        copy_dirs(&copy->read, &copy->n_read, r->read, r->n_read);
        copy_dirs(&copy->write, &copy->n_write, r->write, r->n_write);
    }
    return copy;
}

char *allowed_private(const struct allowed *a)
{
    char *copy = NULL;
    if (a) {
        msg_text(&copy, a->private_dir);
    }
    return copy;
}
