#include "runtime/data/row_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCAN_BYTES ((size_t)1 << 20)
#define WINDOW_BYTES ((size_t)1 << 16)

struct row_file {
    char *path; /* owned */
    int fd;
    struct stat st; /* as it was opened */
    int64_t end;    /* behind the last row, without white space */
    int64_t num_rows;
    int64_t *marks; /* owned; mark i = where row i * stride begins */
    int64_t num_marks, max_marks, stride;
    char *window; /* owned, WINDOW_BYTES; what was read last */
    int64_t window_at, window_len;
    int64_t at;   /* what more gives next */
    int64_t last; /* row that was read last, -1 = none; the next one begins at last_end */
    int64_t last_end;
};

static int changed(const struct row_file *f, const char *how, struct error *err)
{
    return error_set(err, ERR_DATA_LOSS,
                     "%s: %s since it was opened; rows are found by their place, so the file must "
                     "not change under a running job: write a new one",
                     f->path, how);
}

static int check_unchanged(const struct row_file *f, struct error *err)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0) {
        return error_errno(err, errno, "%s", f->path);
    }
    if (st.st_size < f->st.st_size) {
        return changed(f, "has shrunk", err);
    }
    if (st.st_size > f->st.st_size) {
        return changed(f, "has grown", err);
    }
    if (st.st_mtim.tv_sec != f->st.st_mtim.tv_sec || st.st_mtim.tv_nsec != f->st.st_mtim.tv_nsec) {
        return changed(f, "was written to", err);
    }
    return 0;
}

/* Reads len bytes at `at`; all of them have to be there. */
static int read_at(const struct row_file *f, char *out, size_t len, int64_t at, struct error *err)
{
    for (size_t got = 0; got < len;) {
        ssize_t n = pread(f->fd, out + got, len - got, (off_t)at + (off_t)got);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return error_errno(err, errno, "%s: read at byte %lld", f->path, (long long)at);
        }
        if (n == 0) {
            return changed(f, "has shrunk", err);
        }
        got += (size_t)n;
    }
    return 0;
}

/* ---- the index ------------------------------------------------------------------------------- */

/* Sets end: behind the last byte that is no white space. */
static int find_end(struct row_file *f, struct error *err)
{
    f->end = (int64_t)f->st.st_size;
    while (f->end > 0) {
        size_t len = f->end < (int64_t)WINDOW_BYTES ? (size_t)f->end : WINDOW_BYTES;
        if (read_at(f, f->window, len, f->end - (int64_t)len, err) != 0) {
            return -1;
        }
        for (; len > 0; len--, f->end--) {
            if (!strchr(" \t\r\n", f->window[len - 1]) || !f->window[len - 1]) {
                return 0;
            }
        }
    }
    return error_set(err, ERR_INVALID_ARGUMENT, "%s: holds no rows", f->path);
}

/* Every second mark goes, where there is no room for another. */
static int add_mark(struct row_file *f, int64_t at, struct error *err)
{
    if (f->num_rows++ % f->stride != 0) {
        return 0;
    }
    if (f->num_marks == f->max_marks) {
        for (int64_t i = 0; i < f->num_marks; i += 2) {
            f->marks[i / 2] = f->marks[i];
        }
        f->num_marks = (f->num_marks + 1) / 2;
        f->stride *= 2;
        if ((f->num_rows - 1) % f->stride != 0) {
            return 0;
        }
    }
    if ((f->num_marks & (f->num_marks - 1)) == 0) {
        size_t cap = f->num_marks ? (size_t)f->num_marks * 2 : 64;
        int64_t *marks = realloc(f->marks, cap * sizeof *marks);
        if (!marks) {
            return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory for its rows' places",
                             f->path);
        }
        f->marks = marks;
    }
    f->marks[f->num_marks++] = at;
    return 0;
}

static int find_rows(struct row_file *f, struct error *err)
{
    char *chunk = malloc(SCAN_BYTES);
    if (!chunk) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", f->path);
    }
    int rc = add_mark(f, 0, err);
    for (int64_t at = 0; rc == 0 && at < f->end; at += (int64_t)SCAN_BYTES) {
        int64_t left = f->end - at;
        size_t len = left < (int64_t)SCAN_BYTES ? (size_t)left : SCAN_BYTES;
        rc = read_at(f, chunk, len, at, err);
        const char *p = chunk, *end = chunk + len;
        while (rc == 0 && (p = memchr(p, '\n', (size_t)(end - p))) != NULL) {
            p++;
            rc = add_mark(f, at + (p - chunk), err);
        }
    }
    free(chunk);
    return rc;
}

static int set_up(struct row_file *f, const struct roots *roots, struct error *err)
{
    f->fd = roots_open(roots, f->path, &f->st, err);
    if (f->fd < 0) {
        return -1;
    }
    f->window = malloc(WINDOW_BYTES);
    if (!f->window) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", f->path);
    }
    if (find_end(f, err) != 0 || find_rows(f, err) != 0) {
        return -1;
    }
    return check_unchanged(f, err);
}

int row_file_open(struct row_file **out, const struct row_file_options *o, struct error *err)
{
    struct row_file *f = calloc(1, sizeof *f);
    char *path = strdup(o->path);
    if (!f || !path) {
        free(f);
        free(path);
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", o->path);
    }
    *f = (struct row_file){
        .path = path,
        .fd = -1,
        .max_marks = o->max_marks ? o->max_marks : ROW_FILE_MAX_MARKS,
        .stride = 1,
        .last = -1,
    };
    ASSERT(f->max_marks >= 1);
    if (set_up(f, o->roots, err) != 0) {
        row_file_close(f);
        return -1;
    }
    *out = f;
    return 0;
}

void row_file_close(struct row_file *f)
{
    if (!f) {
        return;
    }
    if (f->fd >= 0) {
        close(f->fd);
    }
    free(f->path);
    free(f->marks);
    free(f->window);
    free(f);
}

const char *row_file_path(const struct row_file *f)
{
    return f->path;
}

int64_t row_file_num_rows(const struct row_file *f)
{
    return f->num_rows;
}

int64_t row_file_size_bytes(const struct row_file *f)
{
    return (int64_t)f->st.st_size;
}

int64_t row_file_at_bytes(const struct row_file *f)
{
    return f->last_end;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* struct row_json's more: from f->at on, out of the window where it is there. */
static int more(void *ctx, const char **at, const char **end, struct error *err)
{
    struct row_file *f = ctx;
    if (f->at >= f->end) {
        return 0;
    }
    if (f->at < f->window_at || f->at >= f->window_at + f->window_len) {
        int64_t left = f->end - f->at;
        size_t len = left < (int64_t)WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
        f->window_len = 0;
        if (read_at(f, f->window, len, f->at, err) != 0) {
            return -1;
        }
        f->window_at = f->at;
        f->window_len = (int64_t)len;
    }
    *at = f->window + (f->at - f->window_at);
    *end = f->window + f->window_len;
    f->at = f->window_at + f->window_len;
    return 1;
}

/* Passes over n newlines. */
static int pass_lines(struct row_file *f, struct row_json *j, int64_t n, struct error *err)
{
    while (n > 0) {
        if (j->at == j->end) {
            int rc = more(f, &j->at, &j->end, err);
            if (rc <= 0) {
                return rc < 0 ? -1 : changed(f, "has lost rows", err);
            }
        }
        const char *p = memchr(j->at, '\n', (size_t)(j->end - j->at));
        n -= p != NULL;
        j->at = p ? p + 1 : j->end;
    }
    return 0;
}

int row_file_read(struct row_file *f, int64_t idx, const struct packed_limits *limits,
                  struct packed_row *out, struct error *err)
{
    ASSERT(idx >= 0 && idx < f->num_rows);
    struct row_json j = {.more = more, .ctx = f};
    bool follows = f->last >= 0 && idx == f->last + 1;
    f->at = follows ? f->last_end : f->marks[idx / f->stride];
    f->last = -1;
    if (check_unchanged(f, err) != 0 ||
        pass_lines(f, &j, follows ? 0 : idx % f->stride, err) != 0) {
        return -1;
    }
    if (packed_row_parse(out, &j, limits, err) != 0) {
        return j.failed ? -1 : error_wrap(err, "%s:%lld", f->path, (long long)idx + 1);
    }
    f->last = idx;
    f->last_end = f->at - (j.end - j.at);
    return 0;
}
