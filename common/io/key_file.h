/* Reads keys that people pass to a program, and keeps a program's own key in a file. After reading
 * a key, the process no longer dumps core and cannot be traced by other processes of its user
 * (PR_SET_DUMPABLE), so the secret stays in its memory. Blocks; not for a loop that serves
 * others. */
#ifndef COMMON_IO_KEY_FILE_H
#define COMMON_IO_KEY_FILE_H

#include "common/key.h"
#include "common/status.h"

/* Reads the key that an argument gives: "ddp://..." itself, "-" (one line of stdin) or "@FILE". The
 * argument must be writable, as argv is: it is overwritten so that `ps` no longer shows the secret.
 * STATUS_BAD_INPUT: not a key; STATUS_NOT_FOUND, STATUS_IO: the file. Error texts never contain the
 * secret. */
enum status key_argument(char *argument, struct key *key, struct err *err);

/* Reads a file that key_file_write has made. STATUS_NOT_FOUND: no such file; STATUS_REFUSED: others may
 * read it, or it is not ours (own_path.h: a plain file of our user with one name, no link);
 * STATUS_BAD_INPUT. */
enum status key_file_read(const char *path, struct key *key, struct err *err);
/* Writes the file with mode 0600, whole or not at all, and durably. On failure the old file stays:
 * STATUS_IO, STATUS_TOO_BIG. */
enum status key_file_write(const char *path, const struct key *key, struct err *err);

#endif
