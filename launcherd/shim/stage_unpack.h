/* Unpacks the archive of a staged working directory (common/stage.h) into DIR/files. */
#ifndef LAUNCHERD_SHIM_STAGE_UNPACK_H
#define LAUNCHERD_SHIM_STAGE_UNPACK_H

#include "common/status.h"
#include "launcherd/process/account.h"

struct stage_source {
    int tar_fd;
    const char *dir;
};

/* Makes DIR, owned by `account` (NULL: by us). Call before the change of user. STATUS_IO. */
enum status stage_make_dir(const char *dir, const struct account *account, struct err *err);
/* Unpacks the archive into DIR/files. Call as the job's user. Does nothing if DIR/files is there,
 * from an earlier generation of the job. It appears by a rename, when it is complete. Absolute
 * names, ".." and names through symbolic links are errors, so no entry can be outside. Changes the
 * current directory.
 *
 *   STATUS_BAD_INPUT, STATUS_TOO_BIG  not such an archive, or too large
 *   STATUS_LIBRARY                    libarchive is not installed
 *   STATUS_IO, STATUS_MEMORY          the disk; no memory */
enum status stage_unpack(const struct stage_source *source, struct err *err);

#endif
