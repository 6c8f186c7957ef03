/* Unpacks the archive of a staged working directory (common/stage.h) into DIR/files. */
#ifndef LAUNCHERD_SHIM_STAGE_UNPACK_H
#define LAUNCHERD_SHIM_STAGE_UNPACK_H

#include "common/status.h"
#include "launcherd/process/account.h"

struct stage_source {
    int tar_fd;
    const char *dir;
};

/* Makes DIR, owned by `account` (NULL: by us). With our rights, before the change of user. STATUS_IO. */
enum status stage_make_dir(const char *dir, const struct account *account, struct err *err);
/* Makes DIR/files, with the rights that this process has: those of the job's user. It stays for later
 * generations of the job: where it is, nothing is done. It appears as a whole. No entry can leave it:
 * absolute names, ".." and names through symbolic links are errors.
 *   STATUS_BAD_INPUT, STATUS_TOO_BIG  no such archive
 *   STATUS_LIBRARY                    libarchive is not installed
 *   STATUS_IO                         the disk */
enum status stage_unpack(const struct stage_source *source, struct err *err);

#endif
