#include "plan/cluster.h"

#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "plan/cluster_private.h"
#include "proto/text.h"

/* Errors begin with the field's path. */
static int check(ClusterSpec *cluster, struct error *err)
{
    if (cluster_check_fields(cluster, err) != 0) {
        return -1;
    }
    struct cluster_origin origin;
    cluster_expand(cluster, &origin);
    int rc = cluster_check_tree(cluster, &origin, err);
    if (rc == 0) {
        rc = cluster_fill_types(cluster, &origin, err);
    }
    free(origin.count);
    return rc;
}

int cluster_check(const char *file, ClusterSpec *cluster, struct error *err)
{
    return check(cluster, err) == 0 ? 0 : error_wrap(err, "%s", file);
}

/* Puts file, line and column of the field that the error is of in front. */
static int wrap_place(const char *file, const char *text, size_t len, struct error *err)
{
    char path[CLUSTER_PATH_MAX + 1] = "";
    size_t line, column, end = strcspn(err->text, ":");
    if (end < sizeof path) {
        memcpy(path, err->text, end);
    }
    if (!text_place(text, len, path, &line, &column)) {
        return error_wrap(err, "%s", file);
    }
    return error_wrap(err, "%s:%zu:%zu", file, line, column);
}

int cluster_parse(const char *file, const char *text, size_t len, ClusterSpec **out,
                  struct error *err)
{
    struct error own;
    struct error *e = err ? err : &own; /* its text is read */
    ProtobufCMessage *message;
    if (text_parse(file, text, len, &cluster_spec__descriptor, &message, e) != 0) {
        return -1;
    }
    ClusterSpec *cluster = (ClusterSpec *)message;
    if (check(cluster, e) != 0) {
        cluster_spec__free_unpacked(cluster, NULL);
        return wrap_place(file, text, len, e);
    }
    *out = cluster;
    return 0;
}

int cluster_read(const char *path, ClusterSpec **out, struct error *err)
{
    char *text;
    size_t len;
    if (fs_read_file(path, TEXT_MAX_BYTES, &text, &len, err) != 0) {
        return -1;
    }
    int rc = cluster_parse(path, text, len, out, err);
    free(text);
    return rc;
}
