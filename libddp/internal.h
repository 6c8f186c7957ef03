/* The handle, and functions that the library's files share. */
#ifndef LIBDDP_INTERNAL_H
#define LIBDDP_INTERNAL_H

#include <locale.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "common/limits.h"
#include "libddp/ddp.h"
#include "libddp/fence.h"
#include "libddp/link.h"
#include "libddp/store.h"
#include "libddp/wire.h"

struct ddp {
    struct ddp_place place; /* never changes */
    pid_t pid;              /* of the process that opened it */
    locale_t c_locale;
    /* Set when the shim announces a stop. The time of the kill is set first, so that whoever sees
     * the stop also sees the time. */
    _Atomic uint64_t kill_at_us; /* on CLOCK_BOOTTIME */
    atomic_bool is_stopping, is_link_closed;
    atomic_bool stop_saved; /* ddp_should_checkpoint has returned 1 for the stop */

    /* Guarded by `lock`, which is held only briefly. */
    pthread_mutex_t lock;
    struct link link;
    bool is_joining, has_world;
    bool has_joined; /* a ddp_join has returned the world, which any call may have received */
    uint32_t blob_bytes;
    uint8_t blob[BLOB_BYTES_MAX];
    struct ddp_progress progress; /* `doing` points into the next field */
    char doing[DOING_BYTES_MAX];
    struct wire_times times;
    bool tells_later; /* the shim knows fields of version 2 */
    uint64_t committed_step, told_step, committed_us, reported_us;
    bool is_unsent; /* `progress` has not been sent */

    /* Guarded by `store_lock`, which is held during waits. */
    pthread_mutex_t store_lock;
    struct store store;
    uint64_t gather_count, broadcast_count;
    bool is_gathering;  /* this rank has entered and waits for the others */
    bool is_store_lost; /* the connection failed in the middle of a call of all ranks */

    pthread_mutex_t fence_lock;
    struct fence fence;
    bool has_fence;
    char folder[FENCE_PATH_BYTES - 64];
};

/* -- result.c: statuses of the project as the library's -- */

/* Returns the ddp_status of `status` and, on a failure, fills `error` (may be NULL) from `err`. */
enum ddp_status result(enum status status, const struct err *err, struct ddp_error *error);
enum ddp_status result_forked(struct ddp_error *error);
/* Whether this process is a fork of the one that opened it. */
bool is_forked(const struct ddp *ddp);

/* -- report.c -- */

/* With the lock held: reads messages from the shim and sends what is queued. */
enum status pump(struct ddp *ddp, struct err *err);
/* With the lock held: queues a frame and sends what the socket takes. Frees the frame. */
enum status send_frame(struct ddp *ddp, struct buf *frame, struct err *err);
/* Without the lock: waits for the shim's socket at most `ms`. */
void wait_link(const struct ddp *ddp, short events, int ms);
/* Sends the newest progress and checkpoint, waiting a second at most. */
enum status tell_now(struct ddp *ddp, struct err *err);

/* -- stop.c -- */

/* Whether a signal that asks for a stop has been caught. */
bool stop_is_caught(void);

/* -- together.c -- */

/* All ranks: copies rank 0's bytes to all through the store; any size up to `room`. */
enum status share(struct ddp *ddp, void *bytes, size_t *byte_count, size_t room,
                  const struct store_limit *limit, struct err *err);

#endif
