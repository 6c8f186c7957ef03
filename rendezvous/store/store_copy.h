/* The rows of a state on etcd, kept by a server that stands by: read once, then each change as etcd tells it, on a thread of
 * its own. So a server that begins to lead need not read them first. What the rows take in memory they take in each server.
 *
 * Refused: to ask etcd for what has changed since a revision (min_mod_revision), since it reads every row for that, and tells
 * nothing of rows that were removed. */
#ifndef RENDEZVOUS_STORE_STORE_COPY_H
#define RENDEZVOUS_STORE_STORE_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct etcd_options;
struct store;
struct store_copy;

/* `options` and `prefix` are borrowed for the call. Errors: STATUS_MEMORY, STATUS_LIBRARY, STATUS_BAD_INPUT. */
enum status store_copy_open(struct store_copy **copy, const struct etcd_options *options,
                            const char *prefix, struct err *err);
/* It has rows, and they were the newest a moment ago; or there is no state yet. Any thread. */
bool store_copy_is_ready(struct store_copy *copy);
/* Of etcd, whose rows it has; 0: none now. Any thread. */
int64_t store_copy_revision(struct store_copy *copy);
/* What is to be logged since the last call; false: nothing. The thread itself logs nothing. */
bool store_copy_note(struct store_copy *copy, bool *is_warning, char *text, size_t text_bytes);
/* The rows as they were at `revision` or later; NULL: it has not got them, and will not. Waits for a reading that has begun. Of
 * the caller then; once. */
struct store *store_copy_take(struct store_copy *copy, int64_t revision);
/* Waits for its thread, a second or two. */
void store_copy_close(struct store_copy **copy);

#endif
