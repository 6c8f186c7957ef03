/* For a server that stands by: a copy of all rows of a state on etcd. A thread reads them once and then follows
 * each change that etcd reports, so that the server need not read them when it begins to lead. The copy takes
 * as much memory in each server as the rows do in the leader.
 *
 * Refused: asking etcd for what has changed since a revision (min_mod_revision). etcd reads every row for that,
 * and does not report rows that were removed. */
#ifndef RENDEZVOUS_STORE_STORE_COPY_H
#define RENDEZVOUS_STORE_STORE_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "rendezvous/store/seen.h"

#define STORE_COPY_MISSING_ALL 1000u

struct etcd_options;
struct seen_keeper;
struct store;
struct store_copy;

/* `seen` (may be NULL) is borrowed until store_copy_close. If it knows a later state than etcd has, that is told to the server that leads,
 * by the key of past_key.h, before all rows are read, and again when they are. `options` and `prefix` are borrowed for the call. Errors: STATUS_MEMORY, STATUS_LIBRARY, STATUS_BAD_INPUT. */
enum status store_copy_open(struct store_copy **copy, const struct etcd_options *options,
                            const char *prefix, struct seen_keeper *seen, struct err *err);
/* How much it still has to read, in per mille of the rows. 0: it has all rows and was up to date a
 * moment ago, or there is no state yet. STORE_COPY_MISSING_ALL: everything; also if it cannot read
 * now. May be called from any thread. */
uint32_t store_copy_missing_pm(struct store_copy *copy);
/* Whether etcd has answered that it has no state, at `*revision` of its own. May be called from any
 * thread. */
bool store_copy_is_none(struct store_copy *copy, int64_t *revision);
/* `is_urgent`: read without pauses, because no server leads that they could help. May be called
 * from any thread. */
void store_copy_hurry(struct store_copy *copy, bool is_urgent);
/* etcd's revision that the rows are of; 0: it has none now. May be called from any thread. */
int64_t store_copy_revision(struct store_copy *copy);
/* The newest commit that it has; false: it has no rows now, or they are of an earlier state than was seen. May be called
 * from any thread. */
bool store_copy_seen(struct store_copy *copy, struct seen *seen);
/* The next text to be logged; false: there is none. The thread logs nothing itself. */
bool store_copy_note(struct store_copy *copy, bool *is_warning, char *text, size_t text_bytes);
/* Takes the rows as of `revision` or later; may be called once, and the caller then owns them.
 * Waits for a read that has begun. NULL: it does not have them and will not get them. */
struct store *store_copy_take(struct store_copy *copy, int64_t revision);
/* Ends the thread and waits for it, a second or two. */
void store_copy_close(struct store_copy **copy);

#endif
