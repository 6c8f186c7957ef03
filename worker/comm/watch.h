/* The watcher: a thread that reads the liveness messages on the star, passes them to the pure state
 * machine (live.h) and interrupts collectives that cannot complete any more.
 *
 * Collectives are numbered from 1, equally on every rank. So from "rank 2 left after number 7" each
 * rank knows whether its current collective can still complete. */
#ifndef WORKER_COMM_WATCH_H
#define WORKER_COMM_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

struct comm_watch;

/* Called on the watcher's thread, at most once, when no collective can complete any more: it must
 * interrupt the waiting thread. Must not block. */
typedef void (*comm_watch_broken)(void *user);

/* links: [world], connections of the star by rank, -1 for none; owned by the watch on success.
 * Errors: STATUS_SYSTEM, STATUS_MEMORY. */
enum status comm_watch_new(struct comm_watch **watch, const int *links, uint32_t rank,
                           uint32_t world, comm_watch_broken broken, void *user, struct err *err);
/* Tells the peers that this rank leaves, stops the thread, closes the links. Rank 0 waits up to a
 * second for ranks that leave too, since they can do so in order only through it. */
void comm_watch_free(struct comm_watch **watch);

/* Call around every collective; `what` is its name in errors. begin fails with STATUS_PEER_LOST or
 * STATUS_TIMEOUT where a rank that it needs is lost, has stalled or has left. */
enum status comm_watch_begin(struct comm_watch *watch, const char *what, struct err *err);
void comm_watch_end(struct comm_watch *watch);
/* How many collectives have begun; `*what`: the name of the one that goes on, NULL: none. From any thread. */
uint64_t comm_watch_now(struct comm_watch *watch, const char **what);
/* Whether this rank is busy, see live.h. */
void comm_watch_set_busy(struct comm_watch *watch, bool busy);
/* How much longer the current collective may wait, in which nothing moves since `moved_us`; 0: it has
 * stalled. The limits: see comm_live_stalls_at(). */
uint64_t comm_watch_patience_us(struct comm_watch *watch, uint64_t moved_us, uint64_t limit_us,
                                uint64_t busy_limit_us);
/* STATUS_PEER_LOST or STATUS_TIMEOUT where a rank was lost or has stalled. A rank that left in
 * order is not lost. */
enum status comm_watch_lost(struct comm_watch *watch, const char *what, struct err *err);
/* The error that comm_watch_begin() would give now; begins nothing. Not within a collective. */
enum status comm_watch_check_next(struct comm_watch *watch, const char *what, struct err *err);

/* After a collective failed: waits up to 4 s for the star to tell the cause, and returns it as an
 * error. Where it tells none, the error names `suspect` (a rank or COMM_RANK_NONE) and `cause` (the
 * text of the transport). */
enum status comm_watch_explain(struct comm_watch *watch, const char *what, uint32_t suspect,
                               const char *cause, struct err *err);
/* After a collective timed out: reports the rank that has begun the fewest collectives to all, then
 * as comm_watch_explain(). */
enum status comm_watch_stalled(struct comm_watch *watch, const char *what, struct err *err);

#endif
