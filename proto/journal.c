#include "proto/journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MAGIC[8] = {'T', 'N', 'D', 'M', 'J', 'R', 'N', 'L'};

/* ---- bytes ---- */

/* CRC-32C (Castagnoli), half a byte at a time. */
static uint32_t crc32c(const uint8_t *p, size_t len)
{
    static const uint32_t step[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                      0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                      0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                      0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < len; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ step[crc & 15];
        crc = crc >> 4 ^ step[crc & 15];
    }
    return ~crc;
}

static void put(uint8_t *p, uint64_t value, int num_bytes)
{
    for (int i = 0; i < num_bytes; i++) {
        p[i] = (uint8_t)(value >> 8 * i);
    }
}

static uint64_t get(const uint8_t *p, int num_bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < num_bytes; i++) {
        value |= (uint64_t)p[i] << 8 * i;
    }
    return value;
}

void journal_put_head(struct buf *out, const struct journal_head *head)
{
    uint8_t *p = (uint8_t *)buf_reserve(out, JOURNAL_HEAD_BYTES);
    memcpy(p, MAGIC, sizeof MAGIC);
    put(p + 8, JOURNAL_VERSION, 4);
    put(p + 12, (uint32_t)head->attempt, 4);
    put(p + 16, (uint64_t)head->job_id, 8);
    put(p + 24, (uint32_t)head->segment, 4);
    put(p + 28, crc32c(p, 28), 4);
    out->len += JOURNAL_HEAD_BYTES;
    out->data[out->len] = 0;
}

void journal_put_record(struct buf *out, int64_t seq, const void *body, size_t len)
{
    ASSERT(len <= JOURNAL_BODY_MAX && seq > 0);
    uint8_t *p = (uint8_t *)buf_reserve(out, JOURNAL_RECORD_BYTES + len);
    put(p, len, 4);
    put(p + 8, (uint64_t)seq, 8);
    if (len) {
        memcpy(p + JOURNAL_RECORD_BYTES, body, len);
    }
    put(p + 4, crc32c(p + 8, 8 + len), 4);
    out->len += JOURNAL_RECORD_BYTES + len;
    out->data[out->len] = 0;
}

int journal_take_head(const void *data, size_t len, struct journal_head *out, struct error *err)
{
    const uint8_t *p = data;
    if (len < JOURNAL_HEAD_BYTES) {
        return error_set(err, ERR_DATA_LOSS, "it ends within its head");
    }
    if (memcmp(p, MAGIC, sizeof MAGIC) != 0) {
        return error_set(err, ERR_DATA_LOSS, "not a journal of reports");
    }
    if (get(p + 8, 4) != JOURNAL_VERSION) {
        return error_set(err, ERR_UNIMPLEMENTED, "a journal of format %u; this program reads %d",
                         (unsigned)get(p + 8, 4), JOURNAL_VERSION);
    }
    if (get(p + 28, 4) != crc32c(p, 28)) {
        return error_set(err, ERR_DATA_LOSS, "its head is damaged");
    }
    out->attempt = (int32_t)get(p + 12, 4);
    out->job_id = (int64_t)get(p + 16, 8);
    out->segment = (int32_t)get(p + 24, 4);
    return 0;
}

int journal_take_record(const void *data, size_t len, size_t *at, struct journal_record *out,
                        struct error *err)
{
    const uint8_t *p = (const uint8_t *)data + *at;
    size_t left = len - *at;
    if (left == 0) {
        return 0;
    }
    if (left < JOURNAL_RECORD_BYTES) {
        return error_set(err, ERR_DATA_LOSS, "torn at byte %zu: a record begins and doesn't end",
                         *at);
    }
    size_t body_len = (size_t)get(p, 4);
    if (body_len > JOURNAL_BODY_MAX) {
        return error_set(err, ERR_DATA_LOSS, "damaged at byte %zu: a record of %zu bytes", *at,
                         body_len);
    }
    if (body_len > left - JOURNAL_RECORD_BYTES) {
        return error_set(err, ERR_DATA_LOSS,
                         "torn at byte %zu: %zu of a record's %zu bytes are "
                         "there",
                         *at, left - JOURNAL_RECORD_BYTES, body_len);
    }
    int64_t seq = (int64_t)get(p + 8, 8);
    if (get(p + 4, 4) != crc32c(p + 8, 8 + body_len) || seq <= 0) {
        return error_set(err, ERR_DATA_LOSS, "damaged at byte %zu: a record's checksum differs",
                         *at);
    }
    *out = (struct journal_record){.seq = seq, .body = p + JOURNAL_RECORD_BYTES, .len = body_len};
    *at += JOURNAL_RECORD_BYTES + body_len;
    return 1;
}

/* ---- files ---- */

void journal_name(char out[JOURNAL_NAME_MAX], int32_t segment)
{
    snprintf(out, JOURNAL_NAME_MAX, "%08d.journal", segment);
}

static int compare(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static int list(DIR *dir, struct buf *found, struct error *err)
{
    struct dirent *e;
    size_t num = 0;
    errno = 0;
    while ((e = readdir(dir)) != NULL) {
        char name[JOURNAL_NAME_MAX];
        long n = strtol(e->d_name, NULL, 10);
        int32_t segment = n > 0 && n < INT32_MAX ? (int32_t)n : 0;
        journal_name(name, segment);
        if (segment && strcmp(name, e->d_name) == 0) {
            buf_append(found, &segment, sizeof segment);
        }
        if (++num > JOURNAL_SEGMENTS_MAX + 2) { /* with . and .. */
            return error_set(err, ERR_RESOURCE_EXHAUSTED, "over %d files", JOURNAL_SEGMENTS_MAX);
        }
        errno = 0;
    }
    return errno ? error_errno(err, errno, "list the segments") : 0;
}

int journal_list(int dir_fd, int32_t **out, size_t *num, struct error *err)
{
    struct buf found = {0};
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        int errnum = errno;
        if (fd >= 0) {
            close(fd);
        }
        return error_errno(err, errnum, "list the segments");
    }
    int rc = list(dir, &found, err);
    closedir(dir);
    if (rc != 0) {
        buf_free(&found);
        return -1;
    }
    *num = found.len / sizeof **out;
    *out = (int32_t *)(void *)buf_take(&found);
    qsort(*out, *num, sizeof **out, compare);
    return 0;
}

static int read_whole(int fd, char **out, size_t *len, struct error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return error_errno(err, errno, "stat");
    }
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > JOURNAL_FILE_MAX) {
        return error_set(err, ERR_INVALID_ARGUMENT, "not a regular file of at most %zu bytes",
                         JOURNAL_FILE_MAX);
    }
    struct buf text = {0};
    for (;;) {
        size_t want = text.len < (size_t)st.st_size ? (size_t)st.st_size - text.len : 1;
        ssize_t n = read(fd, buf_reserve(&text, want), want);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 || text.len + (size_t)n > JOURNAL_FILE_MAX) {
            buf_free(&text);
            return error_errno(err, n < 0 ? errno : EFBIG, "read");
        }
        if (n == 0) {
            break;
        }
        text.len += (size_t)n;
    }
    *len = text.len;
    *out = buf_take(&text);
    return 0;
}

int journal_read(int dir_fd, const struct journal_head *want, char **out, size_t *len,
                 struct error *err)
{
    char name[JOURNAL_NAME_MAX];
    struct journal_head head;
    journal_name(name, want->segment);
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return error_errno(err, errno, "%s", name);
    }
    char *text = NULL;
    int rc = read_whole(fd, &text, len, err);
    close(fd);
    rc = rc == 0 ? journal_take_head(text, *len, &head, err) : rc;
    if (rc == 0 && (head.job_id != want->job_id || head.attempt != want->attempt ||
                    head.segment != want->segment)) {
        rc = error_set(err, ERR_DATA_LOSS, "of job %lld, attempt %d, segment %d",
                       (long long)head.job_id, head.attempt, head.segment);
    }
    if (rc != 0) {
        free(text);
        return error_wrap(err, "%s", name);
    }
    *out = text;
    return 0;
}
