/* The thread of a shim that writes to disks: the logs of its workers, and its own log. A disk that hangs
 * (NFS) then stops this thread and nothing else. The bytes wait in a queue of LOG_WRITER_BYTES_MAX.
 *
 * While the queue is full nobody reads the pipes of the workers, so a worker that prints faster than the
 * disk takes waits in its write(). If the disk takes nothing at all for LOG_WRITER_STUCK_MS, the writer
 * is stuck: then what does not fit is dropped, and training goes on. */
#ifndef LAUNCHERD_SHIM_LOG_WRITER_H
#define LAUNCHERD_SHIM_LOG_WRITER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "common/status.h"
#include "launcherd/shim/log_file.h"

#define LOG_WRITER_BYTES_MAX (4u * 1024u * 1024u)
/* Above that: what a worker that ended has left in its pipe, of every worker, and lines of our own. */
#define LOG_WRITER_RESERVE (8u * 1024u * 1024u)
#define LOG_WRITER_STUCK_MS 3000u
#define LOG_WRITER_FLUSH_MS 2000u

struct log_item; /* bytes for a file; a file to close; a line */

struct log_writer {
    uv_async_t async;
    uv_timer_t timer; /* while somebody waits: is it stuck, has the flush taken too long? */
    pthread_t thread;
    void *owner;
    void (*on_room)(void *owner); /* the pipes may be read again: there is room, or it is stuck */
    void (*on_flushed)(void *owner); /* asked by log_writer_flush */
    bool is_open;
    bool is_waiting; /* the pipes, for room */
    bool is_stuck;
    bool is_flushing;
    uint64_t seen_count, flush_by_ms;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    struct log_item *first, *last;
    size_t queued_bytes;
    uint64_t done_count;
    bool ending, ended, notice_wanted;
};

/* Starts the thread. The owner sets `owner` and both callbacks first; they come from the loop. */
enum status log_writer_open(struct log_writer *writer, uv_loop_t *loop, struct err *err);
/* Writes out what is queued, for at most `timeout_ms` (whole seconds). False: the thread still hangs; then the process
 * has to end by _exit. The handles close in the next turn of the loop. */
bool log_writer_close(struct log_writer *writer, uint64_t timeout_ms);

/* A pipe may be read. False: it is not, until on_room. */
bool log_writer_has_room(struct log_writer *writer);
/* False: it is stuck and its queue full, so output is to be dropped. */
bool log_writer_takes(struct log_writer *writer);
/* Copies the bytes. False: they are dropped, since the queue is full, with its reserve too. */
bool log_writer_add(struct log_writer *writer, struct log_file *file,
                    const struct log_piece *piece);
/* Calls `work` in the thread, after what is queued: for other accesses to that disk. False: no memory, or
 * the writer is not open. */
bool log_writer_add_work(struct log_writer *writer, void (*work)(void *argument), void *argument);
/* Closes the file after its bytes. */
void log_writer_add_close(struct log_writer *writer, struct log_file *file);
/* True: all is written. Else on_flushed follows when it is, or after LOG_WRITER_FLUSH_MS. */
bool log_writer_flush(struct log_writer *writer);

#endif
