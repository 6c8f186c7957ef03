/* Keys as people give them to a program, and the file in which a program keeps its own.
 *
 * A process that got a key from here no longer dumps core and cannot be traced by other processes
 * of its user (PR_SET_DUMPABLE): the secret stays in its memory. Blocking; not for a loop that
 * serves others. */
#ifndef COMMON_IO_KEY_FILE_H
#define COMMON_IO_KEY_FILE_H

#include "common/key.h"
#include "common/status.h"

/* The key that an argument names: "ddp://..." itself, "-" (one line of stdin) or "@FILE". The bytes
 * of the argument are overwritten, so that `ps` no longer shows a secret; so it must be writable
 * (of argv). STATUS_BAD_INPUT: not of a key's form; STATUS_NOT_FOUND, STATUS_IO: the file. Texts
 * never repeat the secret. */
enum status key_argument(char *argument, struct key *key, struct err *err);

/* STATUS_NOT_FOUND: no such file; STATUS_REFUSED: others may read it; STATUS_BAD_INPUT. */
enum status key_file_read(const char *path, struct key *key, struct err *err);
/* The file becomes `key`, whole or not at all, with mode 0600, and survives a loss of power. On
 * failure the old file stands: STATUS_IO, STATUS_TOO_BIG. */
enum status key_file_write(const char *path, const struct key *key, struct err *err);

#endif
