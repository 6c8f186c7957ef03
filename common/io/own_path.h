/* Opens files and folders of ours so that nothing of others is touched. A path is followed step by
 * step, by descriptors, so nobody can change it between a check and a use.
 *
 * - A symbolic link on the way is followed only if it is root's, ours, or of the owner of "/".
 * - `ours`: how many folders at the end must be ours: no links, of our user, and no other user may
 *   write in them. 0: any folder, such as one that an administrator has named.
 *
 * STATUS_NOT_FOUND: it is not there. STATUS_REFUSED: it is there and not ours. STATUS_IO: it cannot
 * be read, which says nothing about whose it is. */
#ifndef COMMON_IO_OWN_PATH_H
#define COMMON_IO_OWN_PATH_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "common/status.h"

/* Keeps some descriptors free for these calls, for when the process has no other left. Call once, at
 * the start. */
void own_reserve(void);

/* `*fd` is for *at calls only (O_PATH). */
enum status own_folder_open(const char *path, uint32_t ours, int *fd, struct err *err);
/* Makes what is missing, with `mode`. Existing folders are not changed. */
enum status own_folder_make(const char *path, uint32_t ours, mode_t mode, int *fd, struct err *err);
/* The folder `name` in `parent_fd`, which must be ours, and nothing may be mounted there. */
enum status own_folder_open_at(int parent_fd, const char *name, int *fd, struct err *err);
/* Whether something is mounted on the entry `name` of a folder, or with "" on what `dir_fd` is. Linux before 5.8 does not say
 * it. */
bool own_is_mount(int dir_fd, const char *name);
/* Lists the folder; `fd` stays open. NULL: errno says why. */
DIR *own_folder_list(int fd);
/* Whether the folder `fd` is of our user, and no other user may write in it. */
bool own_folder_is_ours(const struct stat *info, int fd);
/* Whether no user but its owner may write in the folder `fd`: a group only if it is our own, and others not by an access
 * list (POSIX ACL) either. */
bool own_folder_is_private(const struct stat *info, int fd);
/* Whether that user may name a place for us: root, we, and the owner of "/". */
bool own_is_trusted(uid_t uid);

/* Opens a plain file of ours with open(2)'s `flags`, without O_TRUNC. With `ours` 0 it may have one
 * name only, because another user could link one of our files to that place. */
enum status own_file_open(const char *path, uint32_t ours, int flags, mode_t mode, int *fd,
                          struct err *err);
/* Makes a new file for writing; what has the name is removed first, never written to. */
enum status own_file_make(const char *path, uint32_t ours, mode_t mode, int *fd, struct err *err);
enum status own_file_rename(const char *from, const char *to, uint32_t ours, struct err *err);
/* Renames what has the name, of whatever kind, to `path` with `end` added. STATUS_CONFLICT: that name is
 * taken, and nothing was done. */
enum status own_file_put_aside(const char *path, const char *end, uint32_t ours, struct err *err);
/* Renames a damaged file to `path` with ".damaged" added, or with ".damaged-2" and so on if earlier ones are there. */
enum status own_file_keep_damaged(const char *path, uint32_t ours, struct err *err);
/* A symbolic link is removed itself. */
enum status own_file_remove(const char *path, uint32_t ours, struct err *err);

#endif
