/* libddp: the interface between a training program and its launcher. C99 or C++; needs only libc.
 *
 *     struct ddp *ddp;
 *     struct ddp_error error;
 *     if (ddp_open(&ddp, &error) != DDP_OK)
 *         ...error.text says what failed, on which name, why...
 *     rank = ddp_get_place(ddp)->rank;
 *     ddp_join(ddp, id, &id_bytes, sizeof id, DDP_NO_LIMIT, &error);   NCCL's unique id of rank 0
 *     ddp_leave(&ddp);
 *
 * Errors: a call returns DDP_OK, or another ddp_status and fills `error`, which may be NULL. A
 * successful call does not touch it. No call ends the process or prints.
 * Times are seconds. A limit below 0 (DDP_NO_LIMIT) means no limit; 0 looks once without waiting.
 * Ownership: arguments are borrowed for the call. The handle owns what ddp_get_place() returns.
 * Threads: any thread may call at any time with the same handle, except that no other call may run
 * during ddp_open or ddp_leave. A call that waits does not block ddp_report, ddp_should_stop,
 * ddp_should_checkpoint or ddp_fail in other threads.
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
#define DDP_BLOB_BYTES_MAX 512      /* for ddp_join; NCCL's unique id has 128 */
#define DDP_KEY_BYTES_MAX 4096      /* of a key in the store */
#define DDP_VALUE_BYTES_MAX 8388608 /* of a value in the store: 8 MiB */

enum ddp_status {
    DDP_OK = 0,
    DDP_IO = 1,           /* reading or writing failed; error.code is errno */
    DDP_SYSTEM = 2,       /* another system call failed; error.code is errno */
    DDP_MEMORY = 3,       /* out of memory */
    DDP_BAD_INPUT = 4,    /* an argument, an environment variable, or data from a peer */
    DDP_TOO_BIG = 5,      /* over a limit */
    DDP_NOT_FOUND = 6,    /* no such key or file */
    DDP_CONFLICT = 7,     /* a newer generation owns the folder: write nothing there, and end */
    DDP_BUSY = 8,         /* another job that still runs owns the folder */
    DDP_TIMEOUT = 9,      /* the limit has passed; the call may be made again */
    DDP_CLOSED = 10,      /* this generation is being stopped: end without an error message */
    DDP_UNSUPPORTED = 11, /* not available here: no launcher, or no store */
    DDP_FORKED = 12       /* this process is a fork of the one that called ddp_open */
};

struct ddp_error {
    enum ddp_status status;
    int code;       /* errno, or 0 */
    char text[256]; /* one line without its newline */
};

/* This process's place in its job. Later versions may add fields at the end. */
struct ddp_place {
    uint32_t rank, world;             /* world >= 1 */
    uint32_t local_rank, local_world; /* among the ranks of this node */
    uint32_t node_rank, node_count;
    uint32_t generation;      /* counted from 1; each restart of the job is a new one */
    uint32_t restart_count;   /* 0 at first */
    uint64_t job_id;          /* 0: not started by our launcher */
    uint64_t checkpoint_step; /* the newest that was committed, to resume from; 0: none */
    int has_launcher;         /* 1: started by launcherd or `ddpctl run`; 0: started otherwise */
    char node[64];            /* the node's name; "": unknown */
    char address[64];         /* of the node, where other ranks reach it */
    char cluster[64];         /* of the server that gave job_id; "": unknown */
};

/* What this process is doing. A rank that trains but makes no step for a long time is taken for
 * hung (docs/hangs.md), so report a phase without steps before it begins. */
enum ddp_phase {
    DDP_STEPS = 0,
    DDP_PREPARING = 1, /* before a step: loading, compiling */
    DDP_VALIDATING = 2,
    DDP_SAVING = 3,
    DDP_ENDING = 4 /* the last step is done */
};

/* Fields that are unknown are 0. */
struct ddp_progress {
    uint32_t epoch, epochs; /* counted from 1; 0: unknown */
    uint64_t step, steps;   /* updates done in the whole training, of how many; steps 0: unknown */
    double loss;            /* of this step; may be NaN or infinite */
    double samples_per_s;   /* over all ranks; 0: unknown */
    int is_urgent;          /* 1: send it although the last was less than a second ago */
    int phase;              /* enum ddp_phase; a change is sent at once */
    /* Used to find slow ranks. timed_steps: how many steps these times cover, those since the last
     * call; 0: no times. Seconds in total, and of these: waiting for data, forward and backward,
     * weight updates, waiting for other ranks in collectives. */
    uint32_t timed_steps;
    double step_s, data_s, compute_s, update_s, wait_s;
    /* Used to explain a hang. */
    uint64_t collectives; /* collectives begun in this process, counted alike on all ranks */
    int in_collective;    /* 1: it waits in the newest one */
    double again_s; /* a thread calls ddp_report within this time, even without progress; 0: not */
    const char *doing; /* "all_reduce of layer4"; the first 63 bytes; NULL: nothing to say */
};

struct ddp;

/* "0.1.0" */
DDP_API const char *ddp_version(void);
/* "DDP_TIMEOUT" */
DDP_API const char *ddp_status_name(enum ddp_status status);

/* Reads the environment (RANK, WORLD_SIZE, DDP_SHIM_FD and so on) and takes over the connection to
 * the launcher; programs that this one starts do not inherit it. Call once for each process; does
 * not wait. Also succeeds without a launcher: the world has one rank if nothing is set, or is what
 * torchrun or another launcher has set. ddp_get_place()->has_launcher is 0 then. Errors:
 * DDP_BAD_INPUT (names the variable), DDP_MEMORY, DDP_FORKED. */
DDP_API enum ddp_status ddp_open(struct ddp **ddp, struct ddp_error *error);
/* Sends progress that has not been sent, gives up the folder of ddp_fence, closes and frees. Waits
 * a second at most. Sets *ddp to NULL; NULL is allowed. */
DDP_API void ddp_leave(struct ddp **ddp);
/* Valid until ddp_leave. */
DDP_API const struct ddp_place *ddp_get_place(const struct ddp *ddp);

/* -- all ranks together ------------------------------------------------------------------------ */

/* Waits until all ranks have called it, and gives each rank the blob of rank 0. `blob` has room for
 * `blob_bytes_max` bytes. It is input on rank 0 and output on the others, whose *blob_bytes may be 0.
 * Call once in a generation.
 *
 * It also promises the launcher that this program is fenced (ddp_fence). After a lost node the next
 * generation then starts at once, while ranks of this one may still be running. So a program that
 * writes checkpoints must not call this without ddp_fence.
 *
 * Errors: DDP_CLOSED, DDP_TIMEOUT, DDP_TOO_BIG (rank 0's blob exceeds DDP_BLOB_BYTES_MAX or the room
 * here), DDP_BAD_INPUT (called twice, or an invalid message). */
DDP_API enum ddp_status ddp_join(struct ddp *ddp, void *blob, size_t *blob_bytes,
                                 size_t blob_bytes_max, double limit_s, struct ddp_error *error);

/* The calls from here to ddp_store_add use the key-value store at MASTER_ADDR:MASTER_PORT, with
 * PyTorch's protocol. Calls marked "all ranks" must be made by all ranks in the same order. In a world
 * of one only ddp_store_* need a store. Errors of all: DDP_UNSUPPORTED (no store is set), DDP_CLOSED
 * (the store is gone), DDP_TIMEOUT. A caught signal ends only the wait of ddp_join, none of these: ranks
 * agree on a stop by waiting for one another. */

/* All ranks: waits until all have called it. After DDP_TIMEOUT the next call continues the same
 * barrier. */
DDP_API enum ddp_status ddp_barrier(struct ddp *ddp, double limit_s, struct ddp_error *error);
/* All ranks: copies `bytes` of rank 0 to every rank. `byte_count` is the same on all. */
DDP_API enum ddp_status ddp_broadcast(struct ddp *ddp, void *bytes, size_t byte_count,
                                      double limit_s, struct ddp_error *error);
/* All ranks: *any is 1 on every rank if `mine` is not 0 on at least one. With ddp_should_stop as
 * `mine`, all ranks stop after the same step. */
DDP_API enum ddp_status ddp_any(struct ddp *ddp, int mine, int *any, double limit_s,
                                struct ddp_error *error);

/* Keys are texts, as in `TCPStore.get(key)`; keys that begin with "libddp/" are reserved. */
DDP_API enum ddp_status ddp_store_set(struct ddp *ddp, const char *key, const void *bytes,
                                      size_t byte_count, double limit_s, struct ddp_error *error);
/* Waits for the key. `*byte_count`: in: the room; out: the size of the value, also with
 * DDP_TOO_BIG. */
DDP_API enum ddp_status ddp_store_get(struct ddp *ddp, const char *key, void *bytes,
                                      size_t *byte_count, double limit_s, struct ddp_error *error);
/* Adds to the number at the key (a missing one counts as 0). *sum, which may be NULL, gets the
 * result. */
DDP_API enum ddp_status ddp_store_add(struct ddp *ddp, const char *key, int64_t addend,
                                      int64_t *sum, double limit_s, struct ddp_error *error);

/* -- progress and stopping --------------------------------------------------------------------- */

/* Reports progress for `ddpctl status`. Never waits: a report within a second of the last one, or
 * one that the launcher cannot take now, is dropped, except that of the last step. Errors:
 * DDP_CLOSED, DDP_BAD_INPUT (the launcher sent an invalid message; training may go on). */
DDP_API enum ddp_status ddp_report(struct ddp *ddp, const struct ddp_progress *progress,
                                   struct ddp_error *error);

/* Catches SIGTERM and, under a launcher, SIGINT, so that they only change the answer of
 * ddp_should_stop; and SIGUSR1 for ddp_should_checkpoint. Without this call a stop ends the
 * process, since its first signal is SIGTERM. An earlier handler is called, too. Applies to the
 * whole process, also after ddp_leave. Errors: DDP_SYSTEM. */
DDP_API enum ddp_status ddp_catch_signals(struct ddp *ddp, struct ddp_error *error);

enum ddp_stop {
    DDP_GO_ON = 0,
    DDP_STOP_ASKED = 1, /* the launcher stops this generation: cancelled, time limit, failed rank */
    DDP_STOP_SIGNAL = 2,  /* a caught signal, and no message from the launcher yet */
    DDP_STOP_LAUNCHER = 3 /* the launcher is gone: this process will soon be killed */
};
/* Whether this process should save and end. `*left_s`, which may be NULL, gets the time until it is
 * killed; below 0: not known. Cheap enough for every step. */
DDP_API enum ddp_stop ddp_should_stop(struct ddp *ddp, double *left_s);
/* 1: write a checkpoint now. Returns 1 once for each SIGUSR1 (ddp_catch_signals), once when a stop
 * begins, and with interval_s above 0 whenever that much time has passed since the last commit. */
DDP_API int ddp_should_checkpoint(struct ddp *ddp, double interval_s);

/* -- checkpoints ------------------------------------------------------------------------------- */

/* Makes this process the owner of the folder, which must exist. For a shared folder exactly one
 * process of the job calls it. Until ddp_leave, an older generation that still runs somewhere
 * cannot commit there. It is the same fence as ddp-worker's and uses locks: the file system must
 * support flock(). Errors: DDP_CONFLICT (a newer generation of this job owns it), DDP_BUSY (another
 * running job), DDP_BAD_INPUT (its .lock has a text that is not ours), DDP_IO, DDP_TOO_BIG. */
DDP_API enum ddp_status ddp_fence(struct ddp *ddp, const char *folder, struct ddp_error *error);
/* Whether the folder still belongs to this process. Errors: DDP_CONFLICT, DDP_IO, DDP_BAD_INPUT (no
 * ddp_fence before). */
DDP_API enum ddp_status ddp_check_fence(struct ddp *ddp, struct ddp_error *error);
/* Commits the checkpoint of `step`: holds the folder's lock, checks the fence, renames `from` to
 * `to` (both names below the folder) and syncs. Then it tells the launcher the step, from which a
 * restart resumes. The rename happens completely or not at all. If `from` is a file, it is synced
 * first; if it is a folder, sync its files before. NULL and NULL: nothing is renamed. Errors:
 * DDP_CONFLICT, DDP_IO, DDP_NOT_FOUND, DDP_BAD_INPUT. */
DDP_API enum ddp_status ddp_commit(struct ddp *ddp, uint64_t step, const char *from, const char *to,
                                   struct ddp_error *error);
/* Tells the launcher the step of a checkpoint that was committed by other means. Never waits: if
 * the launcher cannot take it now, it is sent with the next ddp_report or ddp_leave. Errors: as
 * ddp_report. */
DDP_API enum ddp_status ddp_committed(struct ddp *ddp, uint64_t step, struct ddp_error *error);

/* -- the end ----------------------------------------------------------------------------------- */

/* Reports the error that ends this process, for `ddpctl status` and `ddpctl why`: the first 2000
 * bytes. Waits a second at most. Does not end the process. */
DDP_API enum ddp_status ddp_fail(struct ddp *ddp, const char *text, struct ddp_error *error);

#ifdef __cplusplus
}
#endif

#endif
