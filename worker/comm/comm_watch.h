/* The liveness star at work: a small thread that sleeps in poll(2), passes what comes to the pure
 * core (comm_live) and interrupts collectives when somebody they need is lost.
 *
 * Collectives are numbered from 1, the same on every rank, so that "rank 2 left after number 7"
 * says whether one that is under way can still complete. */
#ifndef WORKER_COMM_COMM_WATCH_H
#define WORKER_COMM_COMM_WATCH_H

#include <stdint.h>

#include "common/status.h"

struct comm_watch;

/* Runs on the watcher's thread, at most once: nothing can complete any more; wake up who waits.
 * Must not block. */
typedef void (*comm_watch_broken)(void *user);

/* links: [world], the star's descriptors by rank, -1 where there is none; they become the watch's
 * when this succeeds. Errors: STATUS_SYSTEM, STATUS_MEMORY. */
enum status comm_watch_new(struct comm_watch **watch, const int *links, uint32_t rank,
                           uint32_t world, comm_watch_broken broken, void *user, struct err *err);
/* Says goodbye, stops the thread, closes the links. Rank 0 stays up to a second for others that
 * leave too. */
void comm_watch_free(struct comm_watch **watch);

/* Around every collective, `what` is its name in messages. begin fails with STATUS_PEER_LOST or
 * STATUS_TIMEOUT when somebody whom it needs is lost, has stalled or has left. */
enum status comm_watch_begin(struct comm_watch *watch, const char *what, struct err *err);
void comm_watch_end(struct comm_watch *watch);
/* STATUS_PEER_LOST or STATUS_TIMEOUT when somebody was lost or has stalled; who left in order was
 * not lost. */
enum status comm_watch_lost(struct comm_watch *watch, const char *what, struct err *err);

/* After a collective failed: waits a little for the cause and puts it into words. `suspect`, a rank
 * or COMM_RANK_NONE, and `cause`, the transport's own text, are for when nobody knows better. */
enum status comm_watch_explain(struct comm_watch *watch, const char *what, uint32_t suspect,
                               const char *cause, struct err *err);
/* The collective timed out: tells everybody who is furthest behind, then as comm_watch_explain().
 */
enum status comm_watch_stalled(struct comm_watch *watch, const char *what, struct err *err);

#endif
