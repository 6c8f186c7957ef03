/* libddp: what a training program tells its launcher, and asks it. C99 or C++; needs libc alone.
 *
 *     struct ddp *ddp;
 *     struct ddp_error error;
 *     if (ddp_open(&ddp, &error) != DDP_OK)
 *         ...error.text says what failed, on which name, why...
 *     rank = ddp_get_place(ddp)->rank;
 *     ddp_join(ddp, id, &id_bytes, sizeof id, DDP_NO_LIMIT, &error);   NCCL's unique id of rank 0
 *     ddp_leave(&ddp);
 *
 * Errors: a call returns DDP_OK or another ddp_status, and then fills `error`, which may be NULL; a
 * call that succeeds does not touch it. No call ends the process or prints.
 * Times are seconds. A limit below 0 (DDP_NO_LIMIT) is none, 0 looks once.
 * Ownership: arguments are borrowed for the call. The handle owns what ddp_get_place() returns.
 * Threads: any thread may call at any time with the same handle, but for ddp_open and ddp_leave, which
 * need it for themselves. A call that waits does not keep ddp_report, ddp_should_stop,
 * ddp_should_checkpoint or ddp_fail of other threads waiting.
 * After fork() the handle belongs to the parent. In the child every call that would speak to the
 * launcher or to other ranks returns DDP_FORKED and writes nothing; ddp_leave only frees memory.
 *
 * docs/libddp.md has examples, ddp(3) the same as a manual page. */
#ifndef LIBDDP_DDP_H
#define LIBDDP_DDP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_API __attribute__((visibility("default")))

#define DDP_NO_LIMIT (-1.0)
#define DDP_BLOB_BYTES_MAX 512      /* of ddp_join; NCCL's unique id is 128 */
#define DDP_KEY_BYTES_MAX 4096      /* of the store */
#define DDP_VALUE_BYTES_MAX 8388608 /* of the store: 8 MiB */

enum ddp_status {
    DDP_OK = 0,
    DDP_IO = 1,           /* reading or writing failed; error.code is errno */
    DDP_SYSTEM = 2,       /* another system call failed; error.code is errno */
    DDP_MEMORY = 3,       /* out of memory */
    DDP_BAD_INPUT = 4,    /* an argument, a variable of the environment, or what a peer has sent */
    DDP_TOO_BIG = 5,      /* over a limit */
    DDP_NOT_FOUND = 6,    /* no such key or file */
    DDP_CONFLICT = 7,     /* a newer generation owns the folder: write nothing there, and end */
    DDP_BUSY = 8,         /* another job that still runs owns the folder */
    DDP_TIMEOUT = 9,      /* the limit has passed; the call may be made again */
    DDP_CLOSED = 10,      /* this generation is being stopped: end without an error message */
    DDP_UNSUPPORTED = 11, /* not here: no launcher, or no store */
    DDP_FORKED = 12       /* this process is a fork of the one that called ddp_open */
};

struct ddp_error {
    enum ddp_status status;
    int code;       /* errno, or 0 */
    char text[256]; /* one line without its newline */
};

/* Where this process stands in its job. Later versions may add fields at the end. */
struct ddp_place {
    uint32_t rank, world;             /* world >= 1 */
    uint32_t local_rank, local_world; /* among the ranks of this node */
    uint32_t node_rank, node_count;
    uint32_t generation;    /* of the job's membership, counted from 1; each restart is a new one */
    uint32_t restart_count; /* 0 at first */
    uint64_t job_id;        /* 0: not started by our launcher */
    uint64_t checkpoint_step; /* the newest that was committed, to resume from; 0: none */
    int has_launcher;         /* 1: started by launcherd or `ddpctl run`; 0: alone, or by another */
    char node[64];            /* the node's name; "": unknown */
    char address[64];         /* of the node, where other ranks reach it */
    char cluster[64];         /* whose server gave job_id; "": unknown */
};

/* What this process does. While it trains, a rank without a new step for long is taken for hung
 * (docs/hangs.md); say so before a phase that has no steps. */
enum ddp_phase {
    DDP_STEPS = 0,
    DDP_PREPARING = 1, /* before a step: loading, compiling */
    DDP_VALIDATING = 2,
    DDP_SAVING = 3,
    DDP_ENDING = 4 /* the last step is done */
};

/* Everything that is not known is 0. */
struct ddp_progress {
    uint32_t epoch, epochs; /* counted from 1; 0: unknown */
    uint64_t step, steps;   /* updates done in the whole training, of how many; steps 0: unknown */
    double loss;            /* of this step; may be NaN or infinite */
    double samples_per_s;   /* over all ranks; 0: unknown */
    int is_urgent;          /* 1: send it although the last was less than a second ago */
    int phase;              /* enum ddp_phase; a new one is sent at once */
    /* What a slow rank is found by: how many steps these times are of, those since the last call, and the
     * seconds that they took in all; of that it waited for data, computed forward and backward, updated
     * weights, waited for other ranks in collectives. timed_steps 0: no times. */
    uint32_t timed_steps;
    double step_s, data_s, compute_s, update_s, wait_s;
    /* What a hung job is explained by. */
    uint64_t collectives; /* collectives begun in this process, counted alike on all ranks */
    int in_collective;    /* 1: it waits in the newest of them */
    double again_s;    /* ddp_report is called again within that time, also when nothing moves, by
                           * a thread of its own; 0: or not */
    const char *doing; /* "all_reduce of layer4"; the first 63 bytes; NULL: nothing to say */
};

struct ddp;

/* "0.1.0" */
DDP_API const char *ddp_version(void);
/* "DDP_TIMEOUT" */
DDP_API const char *ddp_status_name(enum ddp_status status);

/* Reads the environment (RANK, WORLD_SIZE, DDP_SHIM_FD and so on) and takes over the connection to the
 * launcher, which programs that this one starts do not get. Once for each process; does not wait.
 * Without a launcher it succeeds too: a world of one where nothing is set, or what torchrun or another
 * launcher has set; ddp_get_place()->has_launcher is 0 then. Errors: DDP_BAD_INPUT (names the variable),
 * DDP_MEMORY, DDP_FORKED. */
DDP_API enum ddp_status ddp_open(struct ddp **ddp, struct ddp_error *error);
/* Sends the newest progress if it was not sent, gives the folder of ddp_fence up, closes and frees.
 * Waits a second at most. Sets *ddp to NULL; NULL is allowed. */
DDP_API void ddp_leave(struct ddp **ddp);
/* Valid until ddp_leave. */
DDP_API const struct ddp_place *ddp_get_place(const struct ddp *ddp);

/* -- all ranks together ------------------------------------------------------------------------ */

/* Waits until all ranks have called it, and gives each the blob of rank 0: in on rank 0, out on the
 * others, which may pass no bytes. `blob` has room for `blob_bytes_max` bytes. Once in a generation.
 *
 * It also promises the launcher that this program is fenced (ddp_fence): after a lost node the next
 * generation then starts at once, while ranks of this one may still run there. So a program that does
 * not call ddp_fence, and writes checkpoints, must not call this.
 *
 * Errors: DDP_CLOSED, DDP_TIMEOUT, DDP_TOO_BIG (rank 0's is over DDP_BLOB_BYTES_MAX, or over the room
 * here), DDP_BAD_INPUT (called twice, or not a message). */
DDP_API enum ddp_status ddp_join(struct ddp *ddp, void *blob, size_t *blob_bytes,
                                 size_t blob_bytes_max, double limit_s, struct ddp_error *error);

/* The calls from here to ddp_store_add go through the key-value store at MASTER_ADDR:MASTER_PORT, with
 * PyTorch's protocol. All ranks make those that say so in the same order. In a world of one they do
 * not need a store, but for ddp_store_*. Errors of all: DDP_UNSUPPORTED (no store is named),
 * DDP_CLOSED (the store is gone), DDP_TIMEOUT. A caught signal ends no wait but that of ddp_join: ranks agree
 * on a stop by waiting for one another. */

/* All ranks: waits until all have called it. After DDP_TIMEOUT the next call goes on with the same
 * barrier. */
DDP_API enum ddp_status ddp_barrier(struct ddp *ddp, double limit_s, struct ddp_error *error);
/* All ranks: `bytes` of rank 0 on every rank. `byte_count` is the same on all. */
DDP_API enum ddp_status ddp_broadcast(struct ddp *ddp, void *bytes, size_t byte_count,
                                      double limit_s, struct ddp_error *error);
/* All ranks: *any is 1 on every rank if `mine` is not 0 on one of them. With ddp_should_stop all ranks
 * stop after the same step. */
DDP_API enum ddp_status ddp_any(struct ddp *ddp, int mine, int *any, double limit_s,
                                struct ddp_error *error);

/* Keys are texts, as `TCPStore.get(key)` names them; those that begin with "libddp/" are ours. */
DDP_API enum ddp_status ddp_store_set(struct ddp *ddp, const char *key, const void *bytes,
                                      size_t byte_count, double limit_s, struct ddp_error *error);
/* Waits for the key. `*byte_count`: in, the room; out, the size of the value, also with DDP_TOO_BIG. */
DDP_API enum ddp_status ddp_store_get(struct ddp *ddp, const char *key, void *bytes,
                                      size_t *byte_count, double limit_s, struct ddp_error *error);
/* Adds to the number at the key (none is 0); *sum, which may be NULL, is the number then. */
DDP_API enum ddp_status ddp_store_add(struct ddp *ddp, const char *key, int64_t addend,
                                      int64_t *sum, double limit_s, struct ddp_error *error);

/* -- progress and stopping --------------------------------------------------------------------- */

/* For `ddpctl status`. Never waits: what comes within a second of the last, or what the launcher does
 * not take now, is left out, but for the last step. Errors: DDP_CLOSED, DDP_BAD_INPUT (the launcher has
 * sent what is no message; training may go on). */
DDP_API enum ddp_status ddp_report(struct ddp *ddp, const struct ddp_progress *progress,
                                   struct ddp_error *error);

/* Catches SIGTERM, and SIGINT where there is a launcher, which then only make ddp_should_stop answer, and
 * SIGUSR1 for ddp_should_checkpoint. Without it a stop, whose first signal is SIGTERM, ends the process.
 * A handler that was there is called too. For the whole process, also after ddp_leave. Errors:
 * DDP_SYSTEM. */
DDP_API enum ddp_status ddp_catch_signals(struct ddp *ddp, struct ddp_error *error);

enum ddp_stop {
    DDP_GO_ON = 0,
    DDP_STOP_ASKED =
        1, /* the launcher stops this generation: cancelled, out of time, a failed rank */
    DDP_STOP_SIGNAL = 2,  /* a caught signal, and no word from the launcher (yet) */
    DDP_STOP_LAUNCHER = 3 /* the launcher is gone, so this process is about to be killed */
};
/* Whether this process is to save and end. `*left_s`, which may be NULL, gets the time until it is
 * killed, or a number below 0 where that is not known. Cheap enough for every step. */
DDP_API enum ddp_stop ddp_should_stop(struct ddp *ddp, double *left_s);
/* 1: write a checkpoint now. Once for each SIGUSR1 (see ddp_catch_signals), once when a stop begins,
 * and, with interval_s above 0, when so much time has passed since the last that was committed. */
DDP_API int ddp_should_checkpoint(struct ddp *ddp, double interval_s);

/* -- checkpoints ------------------------------------------------------------------------------- */

/* Makes this process the owner of the folder, which must exist: one process in the whole job for a folder
 * that nodes share. Until ddp_leave an older generation that still runs somewhere commits nothing there.
 * The same fence as ddp-worker's, by locks: the file system must have flock(). Errors: DDP_CONFLICT (a
 * newer generation of this job has taken it), DDP_BUSY (another job that runs), DDP_IO, DDP_TOO_BIG. */
DDP_API enum ddp_status ddp_fence(struct ddp *ddp, const char *folder, struct ddp_error *error);
/* Whether the folder still belongs to this process. Errors: DDP_CONFLICT, DDP_IO, DDP_BAD_INPUT (no
 * ddp_fence before). */
DDP_API enum ddp_status ddp_check_fence(struct ddp *ddp, struct ddp_error *error);
/* Commits the checkpoint of `step`: with the lock of the folder held, checks the fence, renames `from` to
 * `to`, both names under the folder, and syncs; then tells the launcher the step, from which a restart
 * resumes. Whole or not at all. A file is synced first; of a folder sync the files before. NULL and NULL:
 * nothing is renamed. Errors: DDP_CONFLICT, DDP_IO, DDP_NOT_FOUND, DDP_BAD_INPUT. */
DDP_API enum ddp_status ddp_commit(struct ddp *ddp, uint64_t step, const char *from, const char *to,
                                   struct ddp_error *error);
/* Tells the launcher the step of a checkpoint that was committed by other means. Never waits: what the
 * launcher does not take now goes with the next ddp_report, or with ddp_leave. Errors: as ddp_report. */
DDP_API enum ddp_status ddp_committed(struct ddp *ddp, uint64_t step, struct ddp_error *error);

/* -- the end ----------------------------------------------------------------------------------- */

/* The error that ends this process, for `ddpctl status` and `ddpctl why`: the first 2000 bytes. Waits a
 * second at most. The exit code is the caller's. */
DDP_API enum ddp_status ddp_fail(struct ddp *ddp, const char *text, struct ddp_error *error);

#ifdef __cplusplus
}
#endif

#endif
