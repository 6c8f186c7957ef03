/* The record of the slots in the state directory, slots.json:
 *
 *   {"version":1,"boot_id":"...","gpus":8,"slots":[{"slot":0,"incident":"0",...},...]}
 *
 * `version` comes first, then what identifies: the boot, and the number of each slot. 64-bit
 * numbers are decimal strings, since JSON numbers are doubles.
 *
 * Older and newer programs read each other's files. So a new version may only add fields: unknown
 * ones are skipped, and those that are missing, except the identifying ones, are false, 0 or empty.
 * Before version 1 it was a message in slots.msg, which is still read where there is no
 * slots.json. */
#ifndef LAUNCHERD_NODE_SLOTS_FILE_H
#define LAUNCHERD_NODE_SLOTS_FILE_H

#include <stddef.h>

#include "common/buf.h"
#include "common/status.h"
#include "launcherd/core/slots_record.h"

/* STATUS_NOT_FOUND: there is no file. STATUS_BAD_INPUT: it is damaged, and `err` says where;
 * `record` is not valid then. */
enum status slots_file_read(const char *state_dir, struct slots_record *record, struct err *err);
/* Replaces the file as a whole. It is not synced, because a restart of the machine makes it invalid
 * anyway. */
enum status slots_file_write(const char *state_dir, const struct slots_record *record,
                             struct err *err);

/* The content of the file, as bytes. Errors: STATUS_BAD_INPUT, and for encode STATUS_MEMORY. */
enum status slots_file_decode(const char *bytes, size_t byte_count, struct slots_record *record,
                              struct err *err);
enum status slots_file_encode(const struct slots_record *record, struct buf *out, struct err *err);

#endif
