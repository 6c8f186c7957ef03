/* The record of the parts that launcherd has started, in the state directory beside the run directories:
 *
 *   STATE/parts/<cluster>-<job>-g<generation>.start   the start order: a second name of the run directory's start.msg
 *   STATE/parts/<cluster>-<job>-g<generation>.shim    the same of its shim.json, once there is one
 *   STATE/parts/init                                  launcherd was the first process of this boot's pid namespace
 *   STATE/parts/id.json                               the record is of this state directory (node/state_id.h)
 *
 * A part is in it from before its process is started until its run directory is removed. So a run directory that is
 * gone is no proof that its part has ended: the record says what was started there, and which process to look for. It
 * is not synced: it must outlive launcherd, and not the machine. */
#ifndef LAUNCHERD_PROCESS_PART_RECORD_H
#define LAUNCHERD_PROCESS_PART_RECORD_H

#include <limits.h>
#include <stdbool.h>

#include "common/status.h"
#include "launcherd/process/rundir.h"

#define PART_RECORD_DIR "parts"

/* Notes start.msg or shim.json of the run directory. A file system without hard links gets a copy. */
enum status part_record_keep(const char *run_dir, const char *name, struct err *err);
/* Both files of the part, which need not be there. False: one stays, and a log line says why. */
bool part_record_drop(const char *run_dir);
/* What the record says about the part's process. Errors: as rundir_read_shim. */
enum status part_record_read_shim(const char *run_dir, struct rundir_shim *shim, struct err *err);

/* Calls `take` for each part in the record. STATUS_NOT_FOUND: there is no record. STATUS_IO and STATUS_REFUSED: it
 * cannot be read, or is not ours: then nobody knows what was started. */
enum status part_record_list(const char *state_dir,
                             void (*take)(void *owner, const char *run_dir, const char *name),
                             void *owner, struct err *err);
/* Makes the run directory anew, which must not exist, with the files of the record. */
enum status part_record_restore(const char *run_dir, struct err *err);

#endif
