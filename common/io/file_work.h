/* Work on files, away from the loop. A call to the file system may never return (a disk or a file server that
 * hangs), so the loops of launcherd, of its shims and of rendezvous make none: each piece of work runs on a thread, with a deadline. What waits for it gets
 * its result, or at the deadline the name of the disk that does not answer. A thread that hangs is left alone until
 * its call returns; other work goes on.
 *
 *   start    queued; a thread takes it when its lane has room and no earlier work of its key is left
 *   done     called in the loop, once: the work has run, or its deadline is over (`late`)
 *   drop     called once, at the very end: frees it. After a deadline that is when the thread comes back
 *
 * Each lane has a number of threads of its own, so a disk that hangs never takes those of other work. Threads start
 * when they are first needed, and end when they were idle for a while.
 *
 * What a thread does (`run`) is in files named *_files.c: only these touch files, and they touch nothing of the loop.
 * tests/lint checks both (lint.py loop). */
#ifndef COMMON_IO_FILE_WORK_H
#define COMMON_IO_FILE_WORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/status.h"

/* The threads of each lane are in file_work.c. */
enum file_lane {
    FILE_LANE_START,   /* folders and logs of a new shim, and its process */
    FILE_LANE_SWEEP,   /* what ended shims have recorded and left */
    FILE_LANE_REMOVE,  /* run directories of forgotten shims */
    FILE_LANE_CONNECT, /* sockets by their path */
    FILE_LANE_KEEP,    /* slots, key */
    FILE_LANE_LOGS,    /* reading logs */
    FILE_LANE_EXPIRE,  /* old logs */
    FILE_LANE_STAGE,   /* staged working directories; of rendezvous, too */
    FILE_LANE_GAUGES,
    FILE_LANE_ASK,   /* processes that answer questions */
    FILE_LANE_RANKS, /* of a shim: folders, logs and sockets of its ranks */
    FILE_LANE_END,   /* of a shim: its last report */
    FILE_LANE_COUNT
};

/* What a call is about, for the text about one that hangs. */
enum file_disk {
    FILE_DISK_NONE,
    FILE_DISK_LOGS,
    FILE_DISK_STATE,
    FILE_DISK_PROC,
    FILE_DISK_PROGRAM,
    FILE_DISK_STAGE /* the folder "stage" in the state directory */
};

#define FILE_WORK_LATE_MS 10000u /* the usual deadline */
#define FILE_WORK_END_MS 2000u   /* once file_works_close is called */
#define FILE_WORKS_MAX 1024u     /* of a lane that wait for a thread */

struct file_works;

/* Embedded at the beginning of what the work needs; zeroed, on the heap, and owned by file_works from
 * file_work_start to `drop`. The thread may use it until then, so it points to nothing that may go before. */
struct file_work {
    enum file_lane lane;
    uint64_t key;      /* work of the same key runs one after the other, in order; 0: none */
    uint32_t limit_ms; /* until `done` at the latest; 0: no deadline */
    void (*run)(struct file_work *work); /* on a thread */
    /* In the loop. `late` NULL: it has run; else it has not, and this says why. NULL: not called. */
    void (*done)(struct file_work *work, const char *late);
    void (*drop)(struct file_work *work); /* in the loop; on the thread after file_works_close */
    /* Set by `run`: its thread has a child that dies with it, so the thread stays until the loop has ended. */
    bool keeps_thread;
    /* The rest belongs to file_work.c. */
    _Atomic(uint32_t) at; /* disk and call, for the text */
    atomic_bool is_late;
    uint64_t begun_ms;
    struct file_work *next;
};

/* `logs_dir`, `state_dir`: for texts; copied. Errors: STATUS_MEMORY, STATUS_SYSTEM. */
enum status file_works_open(struct file_works **works, uv_loop_t *loop, const char *logs_dir,
                            const char *state_dir, struct err *err);
/* Takes no more work. What is queued still runs, for FILE_WORK_END_MS; then the loop ends. */
void file_works_close(struct file_works *works);
/* Call when the loop has ended. Threads that hang keep what they need. */
void file_works_free(struct file_works **works);

/* Queues the work. `done` is never called within this call. False: it is not taken, and was dropped. */
bool file_work_start(struct file_works *works, struct file_work *work);
/* Runs the work and waits for it: only before the loop runs. `done` is called within this call. */
void file_work_wait(struct file_works *works, struct file_work *work);
/* `done` will not be called; the work still runs. */
void file_work_forget(struct file_work *work);

/* For `run`: says what it does next (`call`: "mkdir", a text that stays). */
void file_work_at(struct file_work *work, enum file_disk disk, const char *call);
/* For `run`: nobody waits any more, so the rest is not to be done. */
bool file_work_is_late(struct file_work *work);

/* Work that its deadline has passed and whose threads still hang. */
uint32_t file_works_hanging(const struct file_works *works);
/* The key of a path. */
uint64_t file_work_key(const char *path);

#endif
