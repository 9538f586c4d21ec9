#include "base/roots_link.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MAX 40

/* A walk below a folder: where it is, and what is still ahead. */
struct walk {
    int root;            /* borrowed */
    int at;              /* owned; the folder that was reached */
    char done[PATH_MAX]; /* words from the root to it; real folders all */
    char ahead[PATH_MAX];
    int num_links;
};

const char *roots_skip(const char *path)
{
    while (path[0] == '/' || (path[0] == '.' && (path[1] == '/' || path[1] == 0))) {
        path++;
    }
    return path;
}

/* a/b into out; false if it doesn't fit. out may be a or b. */
static bool join(char out[PATH_MAX], const char *a, const char *b)
{
    char text[2 * PATH_MAX];
    int n = snprintf(text, sizeof text, "%s%s%s", a, *a && *b ? "/" : "", b);
    if (n < 0 || n >= PATH_MAX) {
        return false;
    }
    memcpy(out, text, (size_t)n + 1);
    return true;
}

static void drop_last(char *path)
{
    char *slash = strrchr(path, '/');
    *(slash ? slash : path) = 0;
}

/* ".." one above the root and further up: by the words of the root's name. */
static bool leave_upwards(const char *root, const char *ahead, char out[PATH_MAX])
{
    char base[PATH_MAX];
    if (snprintf(base, sizeof base, "%s", root) >= (int)sizeof base) {
        return false;
    }
    for (;;) {
        ahead = roots_skip(ahead);
        if (strncmp(ahead, "..", 2) != 0 || (ahead[2] && ahead[2] != '/')) {
            break;
        }
        for (size_t n = strlen(base); n && base[n - 1] == '/'; n--) {
            base[n - 1] = 0;
        }
        drop_last(base);
        ahead += 2;
    }
    return join(out, *base ? base : "/", ahead);
}

static bool step_into(struct walk *w, int fd, const char *word)
{
    close(w->at);
    w->at = fd;
    return join(w->done, w->done, word);
}

/* Back to the folder above: from the root again, since ".." of an open folder may have moved. */
static bool step_up(struct walk *w)
{
    drop_last(w->done);
    int fd = openat(w->root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    char words[PATH_MAX], *left;
    memcpy(words, w->done, sizeof words);
    for (char *word = strtok_r(words, "/", &left); word && fd >= 0;
         word = strtok_r(NULL, "/", &left)) {
        int next = openat(fd, word, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        close(fd);
        fd = next;
    }
    if (fd < 0) {
        return false;
    }
    close(w->at);
    w->at = fd;
    return true;
}

enum step { STEP_ON, STEP_LEFT, STEP_STUCK };

static enum step step_link(struct walk *w, int link, char out[PATH_MAX])
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(link, "", target, sizeof target - 1);
    close(link);
    if (n <= 0 || ++w->num_links > LINKS_MAX) {
        return STEP_STUCK;
    }
    target[n] = 0;
    if (target[0] == '/') {
        return join(out, target, w->ahead) ? STEP_LEFT : STEP_STUCK;
    }
    return join(w->ahead, target, w->ahead) ? STEP_ON : STEP_STUCK;
}

/* One word of what is ahead. */
static enum step step(struct walk *w, const char *root, char out[PATH_MAX])
{
    char word[PATH_MAX];
    const char *p = roots_skip(w->ahead);
    size_t n = strcspn(p, "/");
    if (n == 0) {
        return STEP_STUCK; /* all walked: it doesn't leave */
    }
    memcpy(word, p, n);
    word[n] = 0;
    if (strcmp(word, "..") == 0 && !*w->done) {
        return leave_upwards(root, p, out) ? STEP_LEFT : STEP_STUCK;
    }
    memmove(w->ahead, p + n, strlen(p + n) + 1);
    if (strcmp(word, "..") == 0) {
        return step_up(w) ? STEP_ON : STEP_STUCK;
    }
    struct stat st;
    int fd = openat(w->at, word, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        if (fd >= 0) {
            close(fd);
        }
        return STEP_STUCK;
    }
    if (S_ISLNK(st.st_mode)) {
        return step_link(w, fd, out);
    }
    return step_into(w, fd, word) ? STEP_ON : STEP_STUCK;
}

bool roots_follow(int dir, const char *root, const char *rest, char out[PATH_MAX])
{
    struct walk w = {.root = dir, .at = openat(dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC)};
    enum step s = w.at >= 0 && join(w.ahead, "", rest) ? STEP_ON : STEP_STUCK;
    while (s == STEP_ON) {
        s = step(&w, root, out);
    }
    if (w.at >= 0) {
        close(w.at);
    }
    return s == STEP_LEFT;
}
