/* The thread of a shim that writes to disks: the logs of its workers, and its own log. If a disk
 * hangs (NFS), only this thread stops. The bytes wait in a queue of LOG_WRITER_BYTES_MAX.
 *
 * While the queue is full, the shim does not read the workers' pipes, so a worker that prints
 * faster than the disk writes waits in its write(). If the disk takes nothing at all for
 * LOG_WRITER_STUCK_MS, the writer is stuck: output that does not fit into the queue is then
 * dropped, and training goes on.
 *
 * All functions are called by the loop's thread. */
#ifndef LAUNCHERD_SHIM_LOG_WRITER_H
#define LAUNCHERD_SHIM_LOG_WRITER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "common/status.h"
#include "launcherd/shim/log_file.h"
#include "launcherd/shim/log_patience.h"

#define LOG_WRITER_BYTES_MAX (4u * 1024u * 1024u)
/* More room than that, for what ended workers have left in their pipes, and for lines of our
 * own. */
#define LOG_WRITER_RESERVE (8u * 1024u * 1024u)
#define LOG_WRITER_STUCK_MS 3000u

struct log_item; /* bytes for a file, a file to close, work, or a line for stderr */

struct log_writer {
    uv_async_t async;
    uv_timer_t timer; /* runs while pipes wait or a flush goes on: checks both timeouts */
    pthread_t thread;
    void *owner;
    void (*on_room)(void *owner); /* the pipes may be read again: there is room, or it is stuck */
    /* log_writer_flush asked for it. `left_bytes`: the disk takes no more, and so many are not written; 0: all are. */
    void (*on_flushed)(void *owner, size_t left_bytes);
    bool is_open;
    bool is_waiting; /* pipes are not read until the queue has room */
    bool is_stuck;
    bool is_flushing;
    uint64_t seen_count;
    struct log_patience patience; /* of a flush */
    pthread_mutex_t lock;         /* protects everything below */
    pthread_cond_t changed;
    struct log_item *first, *last;
    size_t queued_bytes;
    uint64_t done_count;
    bool ending, ended, notice_wanted;
};

/* Starts the thread. The owner sets `owner` and both callbacks first; they are called by the loop's
 * thread. */
enum status log_writer_open(struct log_writer *writer, uv_loop_t *loop, struct err *err);
/* Writes what is queued, as long as the disk takes it (log_patience.h), and ends the thread. False: the
 * thread still hangs, and the process must end with _exit. The loop must run once more to close the
 * handles. */
bool log_writer_close(struct log_writer *writer);

/* Whether a pipe may be read. False: do not read it until on_room. */
bool log_writer_has_room(struct log_writer *writer);
/* Whether output is accepted. False: the writer is stuck and its queue is full, so drop the
 * output. */
bool log_writer_takes(struct log_writer *writer);
/* Queues a copy of the bytes. False: they are dropped, because the queue and its reserve are full,
 * or there is no memory. */
bool log_writer_add(struct log_writer *writer, struct log_file *file,
                    const struct log_piece *piece);
/* Calls `work` in the thread after what is queued: for other accesses to that disk. False: no
 * memory, or the writer is not open. */
bool log_writer_add_work(struct log_writer *writer, void (*work)(void *argument), void *argument);
/* Closes the file in the thread, after its queued bytes are written. */
void log_writer_add_close(struct log_writer *writer, struct log_file *file);
/* True: all is written. Otherwise on_flushed is called when it is, or when the disk takes no more (log_patience.h). */
bool log_writer_flush(struct log_writer *writer);

#endif
