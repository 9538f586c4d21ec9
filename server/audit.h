/* Who did what. A change is a row in the transaction that makes it. Refusals are counted in memory,
 * in one row a minute for each caller, method and address, and written in batches: however many
 * bad tokens come, they fill no disk.
 *
 * audit_change runs on the owner thread, audit_refusal on any. */
#ifndef TANDEM_SERVER_AUDIT_H
#define TANDEM_SERVER_AUDIT_H

#include "server/controller.h"
#include "server/store/access_rows.h"

/* Rows of refusals a minute; the rest is counted in one more. */
#define AUDIT_REFUSALS_MAX 128

struct audit;

int audit_new(struct audit **out);
void audit_free(struct audit *a);

/* object: "job 12". */
int audit_change(struct controller *c, const struct caller *who, struct error *err, const char *fmt,
                 ...) __attribute__((format(printf, 4, 5)));

/* who: NULL = nobody known. method: of the table, or "Jobs/Cancel". result: "denied", or the
 * error's words. */
void audit_refusal(struct audit *a, const struct caller *who, const char *method, const char *peer,
                   const char *result);

/* What the database doesn't have yet, at most AUDIT_REFUSALS_MAX + 1 of them; a refusal that goes
 * on is the same row with a higher count. Each change of a count is given once. */
struct audit_count {
    int slot;
    uint32_t generation;
    int64_t row_id;     /* 0 = not in the database yet */
    int64_t written_id; /* set by audit_count_write */
    int64_t time_us;
    char tenant[ACCESS_NAME_SIZE], user[ACCESS_NAME_SIZE];
    int64_t token_id;
    char method[64], peer[48], result[160];
    int64_t num;
};
size_t audit_counts(struct audit *a, struct audit_count out[AUDIT_REFUSALS_MAX + 1]);
int audit_count_write(struct store *s, struct audit_count *c, struct error *err);
/* They were written and are committed. */
void audit_counts_saved(struct audit *a, const struct audit_count *counts, size_t num);

#endif
