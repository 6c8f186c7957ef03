/* Takes chosen files out of a .tar.gz. */
#ifndef WORKER_DATA_FETCH_UNPACK_H
#define WORKER_DATA_FETCH_UNPACK_H

#include <stdbool.h>

#include "common/status.h"

/* Writes `folder`/NAME of the archive as `dir`/`folder`/NAME, for each of `names` (ends with NULL).
 * All other names in the archive are skipped, so nothing is written elsewhere. A file gets its name
 * when it is complete; one that is there stays as it is. Errors: STATUS_BAD_INPUT (damaged; a name is missing), STATUS_TOO_BIG,
 * STATUS_LIBRARY (no libarchive), STATUS_IO, STATUS_MEMORY. */
enum status unpack_files(const char *archive_path, const char *dir, const char *folder,
                         const char *const *names, struct err *err);
/* Whether all of these files exist. */
bool unpack_is_done(const char *dir, const char *folder, const char *const *names);

#endif
