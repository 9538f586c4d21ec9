/* Files: whole reads with a bound, durable atomic writes, folders. Errors name the path. */
#ifndef TANDEM_BASE_FS_H
#define TANDEM_BASE_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/error.h"

/* Opens a regular file for reading and says what it is; a FIFO or a device is an error, not a wait.
 * Gives the descriptor. Paths that others have named go through base/roots.h. */
int fs_open_regular(const char *path, struct stat *st, struct error *err);
/* Opens a regular file for appending and makes it where there is none. Whatever else stands there,
 * a link included, is an error that names it, not a wait. Gives the descriptor. */
int fs_open_append(const char *path, mode_t mode, struct error *err);
/* Is what fd holds a regular file? path is for messages. */
int fs_check_regular(int fd, const char *path, struct stat *st, struct error *err);
/* Reads all of a regular file that was just opened, of at most max_bytes; as fs_read_file. */
int fs_read_open(int fd, const char *path, size_t max_bytes, char **out, size_t *len,
                 struct error *err);

/* Reads a whole regular file of at most max_bytes. *out is the caller's, NUL-terminated. */
int fs_read_file(const char *path, size_t max_bytes, char **out, size_t *len, struct error *err);

/* Replaces path: temporary name in the same folder, fsync, rename, fsync of the folder. */
int fs_write_atomic(const char *path, const void *data, size_t len, mode_t mode, struct error *err);

/* Makes a folder and those above it; an existing folder is fine. */
int fs_mkdirs(const char *path, mode_t mode, struct error *err);
/* Removes a file, or a folder with all in it, at most 64 deep; a missing one is fine. Follows no
 * links below path, also if others put some there meanwhile. */
int fs_remove_tree(const char *path, struct error *err);
/* The same, of a name in an open folder. */
int fs_remove_tree_at(int dir, const char *name, struct error *err);
int fs_fsync_dir(const char *path, struct error *err);
bool fs_exists(const char *path);
/* dir/name into out; false if it doesn't fit. */
bool fs_join(char *out, size_t size, const char *dir, const char *name);
/* Folder of the running program (from /proc/self/exe). */
int fs_self_dir(char *out, size_t size, struct error *err);
/* Writes all of it, through short writes and EINTR. */
int fs_write_all(int fd, const void *data, size_t len);

#endif
