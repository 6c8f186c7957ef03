/* Every message between the programs, declared once: fields, types, ranges. docs/protocol.md tells
 * the flows.
 *
 * On the wire: u32 big-endian byte count, then one JSON object {"type":"go","seq":7,...}. All
 * fields of a message are required, unknown and repeated keys are refused. `seq` counts the
 * messages of one direction of one connection from 1: a receiver drops what is not newer than the
 * last it took (common/link.h), so a repeated or overtaken message is a lost one, and losses are
 * healed because both sides state what is, again and again, rather than what happened once. u64
 * values travel as decimal strings (JSON numbers are doubles). Bytes travel as base64.
 *
 * A decoded message borrows from the arena that it was decoded into. A message to encode borrows
 * from its maker. */
#ifndef COMMON_MSG_H
#define COMMON_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"

struct msg_text_list {
    const char *const *items; /* [count] */
    uint32_t count;
};
struct msg_pair {
    const char *name, *value;
};
struct msg_pair_list { /* a JSON object of strings; names are unique */
    const struct msg_pair *items;
    uint32_t count;
};
struct msg_bytes {
    const uint8_t *items;
    uint32_t count;
};

#define GENERATION_MAX 1000000u
#define JOB_ID_MAX 9007199254740991u
#define TIME_US_MAX INT64_MAX
#define DURATION_US_MAX (366ull * 86400u * 1000000u)

/* Enumerations: X(constant suffix, word on the wire). */
#define JOB_STATE_TABLE(X)                                                                         \
    X(QUEUED, "queued")                                                                            \
    X(STARTING, "starting")                                                                        \
    X(RUNNING, "running")                                                                          \
    X(RESTARTING, "restarting")                                                                    \
    X(SUCCEEDED, "succeeded")                                                                      \
    X(FAILED, "failed")                                                                            \
    X(CANCELLED, "cancelled")
#define SHIM_PHASE_TABLE(X)                                                                        \
    X(PREPARING, "preparing") /* spawned, says nothing yet */                                      \
    X(READY, "ready")         /* waits for `go` */                                                 \
    X(RUNNING, "running")     /* every worker was spawned */                                       \
    X(STOPPING, "stopping")   /* being killed */                                                   \
    X(ENDED, "ended")         /* no process of the job is left here */
#define RANK_STATE_TABLE(X)                                                                        \
    X(WAITING, "waiting") /* not spawned */                                                        \
    X(RUNNING, "running")                                                                          \
    X(EXITED, "exited")   /* by itself: exit_code or signal */                                     \
    X(STOPPED, "stopped") /* ended after we signalled it */                                        \
    X(LOST, "lost")       /* its shim or node is gone */
#define NODE_STATE_TABLE(X)                                                                        \
    X(UP, "up")                                                                                    \
    X(SUSPECT, "suspect") /* silent for NODE_SUSPECT_US, or its connection is closed */            \
    X(LOST, "lost")
#define SLOT_STATE_TABLE(X)                                                                        \
    X(FREE, "free")                                                                                \
    X(BUSY, "busy")               /* a shim has it */                                              \
    X(CHECKING, "checking")       /* its GPU is being proved free */                               \
    X(QUARANTINED, "quarantined") /* somebody is on its GPU; open again when that is gone */       \
    X(UNKNOWN, "unknown")         /* NVML does not tell; open again when it does */                \
    X(DRAINED, "drained")         /* a fault, or an operator: until it is resumed */

#define MSG_JOB_STATE(name, word) JOB_##name,
#define MSG_SHIM_PHASE(name, word) SHIM_##name,
#define MSG_RANK_STATE(name, word) RANK_##name,
#define MSG_NODE_STATE(name, word) NODE_##name,
#define MSG_SLOT_STATE(name, word) SLOT_##name,
enum job_state { JOB_STATE_TABLE(MSG_JOB_STATE) };
enum shim_phase { SHIM_PHASE_TABLE(MSG_SHIM_PHASE) };
enum rank_state { RANK_STATE_TABLE(MSG_RANK_STATE) };
enum node_state { NODE_STATE_TABLE(MSG_NODE_STATE) };
enum slot_state { SLOT_STATE_TABLE(MSG_SLOT_STATE) };
/* Every enumeration of this file: X(tag, TABLE). The codec and the _word functions are made from
 * it. */
#define MSG_ENUM_TABLE(X)                                                                          \
    X(job_state, JOB_STATE_TABLE)                                                                  \
    X(shim_phase, SHIM_PHASE_TABLE)                                                                \
    X(rank_state, RANK_STATE_TABLE)                                                                \
    X(node_state, NODE_STATE_TABLE)                                                                \
    X(slot_state, SLOT_STATE_TABLE)

/* Fields: F(kind, name, min, max) with the kinds
 *   U32 I32 F64: a JSON number in min..max (finite);  U64 I64: a decimal string in min..max;  BOOL
 * (0, 0) TEXT: UTF-8 without NUL, min..max bytes;  LINE: TEXT without control characters;  NAME:
 * [A-Za-z0-9._-]+ TEXTS: array of min..max TEXTs;  PAIRS: object of up to max strings;  BYTES:
 * base64, min..max bytes E(name, enum, TABLE): a word of that table.  L(name, part, max): array of
 * up to max of those parts. */

/* one shim as a node's beat lists it */
#define PART_BEAT_SHIM(F, E, L)                                                                    \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    E(phase, shim_phase, SHIM_PHASE_TABLE)                                                         \
    F(U64, slot_mask, 0, UINT64_MAX) /* bit i: slot i of the node is in use by it */
/* one slot of a node that must not be given out, as its beat lists it */
#define PART_SLOT_CLOSED(F, E, L)                                                                  \
    F(U32, slot, 0, SLOTS_PER_NODE_MAX - 1)                                                        \
    E(state, slot_state, SLOT_STATE_TABLE) /* never free or busy */                                \
    F(U64, incident, 0, UINT64_MAX)        /* of drained: what slot_resume must name */            \
    F(LINE, reason, 0, REASON_BYTES_MAX - 1)
/* what launcherd keeps of one GPU's slot over its own restarts, within one boot */
#define PART_SLOT_KEPT(F, E, L)                                                                    \
    F(U32, slot, 0, SLOTS_PER_NODE_MAX - 1)                                                        \
    F(BOOL, has_baseline, 0, 0)                                                                    \
    F(U64, baseline_bytes, 0, UINT64_MAX) /* in use while nobody is on the device */               \
    F(BOOL, has_ecc, 0, 0)                                                                         \
    F(U64, ecc_uncorrected, 0, UINT64_MAX) /* counter that was seen last */                        \
    F(BOOL, remap_failed, 0, 0)                                                                    \
    F(U64, incident, 0, UINT64_MAX) /* 0: not drained */                                           \
    F(LINE, reason, 0, REASON_BYTES_MAX - 1)
/* one slot as a client sees it */
#define PART_SLOT(F, E, L)                                                                         \
    F(NAME, node, 1, NODE_NAME_BYTES_MAX - 1)                                                      \
    F(U32, slot, 0, SLOTS_PER_NODE_MAX - 1)                                                        \
    E(state, slot_state, SLOT_STATE_TABLE)                                                         \
    F(U64, job_id, 0, JOB_ID_MAX) /* on it; 0: none */                                             \
    F(U32, generation, 0, GENERATION_MAX)                                                          \
    F(LINE, reason, 0, REASON_BYTES_MAX - 1)                                                       \
    F(LINE, drained_by, 0, USER_NAME_BYTES_MAX - 1) /* empty: the node itself */                   \
    F(I64, since_ms, 0, TIME_US_MAX)                /* wall clock; 0: open */
/* one rank in a shim's report */
#define PART_REPORT_RANK(F, E, L)                                                                  \
    F(U32, rank, 0, RANKS_PER_JOB_MAX - 1)                                                         \
    E(state, rank_state, RANK_STATE_TABLE)                                                         \
    F(U32, pid, 0, INT32_MAX)                                                                      \
    F(I32, exit_code, 0, 255)                                                                      \
    F(U32, signal, 0, 64) /* 0: none */                                                            \
    F(BOOL, joined, 0, 0)
/* one rank as a client sees it */
#define PART_JOB_RANK(F, E, L)                                                                     \
    F(U32, rank, 0, RANKS_PER_JOB_MAX - 1)                                                         \
    F(U32, local_rank, 0, SLOTS_PER_NODE_MAX - 1)                                                  \
    F(LINE, node, 0, NODE_NAME_BYTES_MAX - 1)                                                      \
    F(U32, slot, 0, SLOTS_PER_NODE_MAX - 1)                                                        \
    F(U32, pid, 0, INT32_MAX)                                                                      \
    E(state, rank_state, RANK_STATE_TABLE)                                                         \
    F(I32, exit_code, 0, 255)                                                                      \
    F(U32, signal, 0, 64)
/* one node as a client sees it */
#define PART_NODE(F, E, L)                                                                         \
    F(NAME, name, 1, NODE_NAME_BYTES_MAX - 1)                                                      \
    E(state, node_state, NODE_STATE_TABLE)                                                         \
    F(LINE, address, 0, ADDRESS_BYTES_MAX - 1)                                                     \
    F(U32, slots, 0, SLOTS_PER_NODE_MAX)                                                           \
    F(U32, slots_free, 0, SLOTS_PER_NODE_MAX)                                                      \
    F(U32, slots_closed, 0, SLOTS_PER_NODE_MAX)                                                    \
    F(U32, gpus, 0, SLOTS_PER_NODE_MAX)                                                            \
    F(BOOL, drained, 0, 0) /* as a whole, by an operator: */                                       \
    F(LINE, drain_reason, 0, REASON_BYTES_MAX - 1)                                                 \
    F(LINE, drained_by, 0, USER_NAME_BYTES_MAX - 1)                                                \
    F(I64, drained_ms, 0, TIME_US_MAX) /* wall clock */                                            \
    F(U32, pid, 0, INT32_MAX)                                                                      \
    F(LINE, version, 0, 31)                                                                        \
    F(I64, beat_age_us, -1, TIME_US_MAX) /* since the last beat; -1: none yet */
/* something that happened, in words */
#define PART_EVENT(F, E, L)                                                                        \
    F(U64, id, 1, JOB_ID_MAX)                                                                      \
    F(I64, at_ms, 0, TIME_US_MAX) /* wall clock, since 1970 */                                     \
    F(U64, job_id, 0, JOB_ID_MAX) /* 0: about no job */                                            \
    F(U32, generation, 0, GENERATION_MAX)                                                          \
    F(LINE, text, 0, REASON_BYTES_MAX - 1)
/* a job's summary: what `ps` shows, and the head of `status` */
#define PART_JOB(F, E, L)                                                                          \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(NAME, name, 1, JOB_NAME_BYTES_MAX - 1)                                                       \
    F(LINE, user, 0, USER_NAME_BYTES_MAX - 1)                                                      \
    E(state, job_state, JOB_STATE_TABLE)                                                           \
    F(U32, generation, 0, GENERATION_MAX)                                                          \
    F(U32, restarts, 0, GENERATION_MAX)                                                            \
    F(U32, max_restarts, 0, GENERATION_MAX)                                                        \
    F(U32, nodes, 1, NODES_PER_JOB_MAX)                                                            \
    F(U32, nproc_per_node, 1, SLOTS_PER_NODE_MAX)                                                  \
    F(U32, ranks_running, 0, RANKS_PER_JOB_MAX)                                                    \
    F(LINE, where, 0, REASON_BYTES_MAX - 1)  /* "node[0-1]"; empty while nowhere */                \
    F(LINE, reason, 0, REASON_BYTES_MAX - 1) /* why it waits, restarts, failed; may be empty */    \
    F(BOOL, ended, 0, 0)                                                                           \
    F(I32, exit_code, 0, 255) /* of the job, once ended: of the first failing rank; 128+signal */  \
    F(U32, signal, 0, 64)                                                                          \
    F(BOOL, exit_is_ours, 0, 0) /* true: 124, 125, 126, 127 or cancelled, not the program's own */ \
    F(I64, submitted_ms, 0, TIME_US_MAX)                                                           \
    F(I64, started_ms, 0, TIME_US_MAX) /* of generation 1; 0: not yet */                           \
    F(I64, ended_ms, 0, TIME_US_MAX)                                                               \
    F(U32, epoch, 0, UINT32_MAX) /* progress as rank 0 told last; all zero when it never did */    \
    F(U32, epochs, 0, UINT32_MAX)                                                                  \
    F(U64, step, 0, JOB_ID_MAX)  /* global step */                                                 \
    F(U64, steps, 0, JOB_ID_MAX) /* of the whole training; 0: unknown */                           \
    F(F64, loss, -1e300, 1e300)                                                                    \
    F(F64, samples_per_s, 0, 1e300)                                                                \
    F(U64, checkpoint_step, 0, JOB_ID_MAX)

/* -- a node and the server --------------------------------------------------------------------- */
#define MSG_NODE_HELLO(F, E, L) /* node -> server, first */                                        \
    F(U32, protocol, 0, UINT32_MAX)                                                                \
    F(LINE, version, 0, 31)                                                                        \
    F(NAME, name, 1, NODE_NAME_BYTES_MAX - 1)                                                      \
    F(LINE, boot_id, 1, 63)                                                                        \
    F(U64, instance, 0, UINT64_MAX) /* random for each launcherd process */                        \
    F(U32, pid, 0, INT32_MAX)                                                                      \
    F(LINE, address, 1, ADDRESS_BYTES_MAX - 1) /* where its workers can be reached */              \
    F(U32, slots, 1, SLOTS_PER_NODE_MAX)                                                           \
    F(U32, gpus, 0, SLOTS_PER_NODE_MAX) /* 0: slots are CPU shares */                              \
    L(shims, beat_shim, SHIMS_PER_NODE_MAX)                                                        \
    L(closed, slot_closed, SLOTS_PER_NODE_MAX)
#define MSG_NODE_WELCOME(F, E, L) /* server -> node */                                             \
    F(NAME, cluster, 1, 32)       /* random for each state directory of the server */              \
    F(U32, beat_interval_us, 1000, 60000000)                                                       \
    F(U64, lease_us, 1000, DURATION_US_MAX)
#define MSG_BEAT(F, E, L)           /* node -> server, every beat_interval_us: what is here */     \
    F(U64, sent_us, 0, TIME_US_MAX) /* the node's boot clock */                                    \
    L(shims, beat_shim, SHIMS_PER_NODE_MAX)                                                        \
    L(closed, slot_closed, SLOTS_PER_NODE_MAX)
#define MSG_BEAT_ACK(F, E, L) /* server -> node; the lease counts from `sent_us` */                \
    F(U64, sent_us, 0, TIME_US_MAX)
#define MSG_NODE_EVENT(F, E, L) /* node -> server: for people; may be lost */                      \
    F(U32, slot, 0, SLOTS_PER_NODE_MAX - 1)                                                        \
    F(LINE, text, 1, REASON_BYTES_MAX - 1)
#define MSG_SLOT_RESUME(F, E, L) /* server -> node: an operator says that this fault is mended */  \
    F(U32, slot, 0, SLOTS_PER_NODE_MAX - 1)                                                        \
    F(U64, incident, 0, UINT64_MAX) /* a later fault of the slot is not meant */
#define MSG_START(F, E, L) /* server -> node: prepare one shim; kept in its run directory */       \
    F(NAME, cluster, 1, 32)                                                                        \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(NAME, name, 1, JOB_NAME_BYTES_MAX - 1)                                                       \
    F(LINE, user, 0, USER_NAME_BYTES_MAX - 1)                                                      \
    F(U32, uid, 0, UINT32_MAX)                                                                     \
    F(U32, node_rank, 0, NODES_PER_JOB_MAX - 1)                                                    \
    F(U32, node_count, 1, NODES_PER_JOB_MAX)                                                       \
    F(U32, rank_base, 0, RANKS_PER_JOB_MAX - 1)                                                    \
    F(U32, local_count, 1, SLOTS_PER_NODE_MAX)                                                     \
    F(U32, world, 1, RANKS_PER_JOB_MAX)                                                            \
    F(U64, slot_mask, 1, UINT64_MAX) /* exactly local_count bits: local rank i has the i-th */     \
    F(U32, restart_count, 0, GENERATION_MAX)                                                       \
    F(U32, max_restarts, 0, GENERATION_MAX)                                                        \
    F(U64, grace_us, 0, DURATION_US_MAX)                                                           \
    F(TEXT, cwd, 1, 4095)                                                                          \
    F(TEXTS, argv, 1, ARGS_MAX)                                                                    \
    F(PAIRS, env, 0, ENV_MAX)
#define MSG_GO(F, E, L) /* server -> node -> shim: every shim of the generation is ready: spawn */ \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(LINE, master_addr, 1, ADDRESS_BYTES_MAX - 1)                                                 \
    F(U32, master_port, 1, 65535)
#define MSG_WORLD(F, E, L) /* server -> node -> shim -> every worker: all have joined */           \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(BYTES, blob, 0, BLOB_BYTES_MAX) /* rank 0's */
#define MSG_STOP(F, E, L)             /* server -> node -> shim */                                 \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(U32, signal, 1, 64)                                                                          \
    F(U64, grace_us, 0, DURATION_US_MAX) /* from `signal` to SIGKILL of the tree; 0: at once */    \
    F(LINE, reason, 0, REASON_BYTES_MAX - 1)
#define MSG_FORGET(F, E, L) /* server -> node -> shim: the end is recorded; the shim goes */       \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)
#define MSG_SHIM_REPORT(F, E, L) /* shim -> node -> server: all there is to know; until acked */   \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(U32, revision, 1, UINT32_MAX) /* grows with every change of the rest */                      \
    E(phase, shim_phase, SHIM_PHASE_TABLE)                                                         \
    F(U32, master_port, 0, 65535)     /* reserved on this node; used of node rank 0 */             \
    F(BYTES, blob, 0, BLOB_BYTES_MAX) /* rank 0's, once it has joined */                           \
    F(BOOL, has_world, 0, 0)          /* `world` has come */                                       \
    F(I32, failed_rank, -1, RANKS_PER_JOB_MAX - 1) /* first to fail on this node; -1: none */      \
    F(U64, failed_age_us, 0, DURATION_US_MAX)      /* how long before sending this it failed */    \
    F(I32, failed_errno_exit, 0, 127)       /* 126/127: the command could not be run; else 0 */    \
    F(LINE, cause, 0, REASON_BYTES_MAX - 1) /* in words, when failed or lost */                    \
    F(TEXT, tail, 0, TAIL_BYTES_MAX - 1)    /* last lines of failed_rank */                        \
    L(ranks, report_rank, SLOTS_PER_NODE_MAX)
#define MSG_REPORT_ACK(F, E, L) /* server -> node -> shim */                                       \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(U32, revision, 1, UINT32_MAX)
#define MSG_PROGRESS(F, E, L) /* worker -> shim -> node -> server; once a second, may be lost */   \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(U32, rank, 0, RANKS_PER_JOB_MAX - 1)                                                         \
    F(U32, epoch, 0, UINT32_MAX)                                                                   \
    F(U32, epochs, 0, UINT32_MAX)                                                                  \
    F(U64, step, 0, JOB_ID_MAX)                                                                    \
    F(U64, steps, 0, JOB_ID_MAX)                                                                   \
    F(F64, loss, -1e300, 1e300)                                                                    \
    F(F64, samples_per_s, 0, 1e300)                                                                \
    F(U64, checkpoint_step, 0, JOB_ID_MAX) /* newest committed; 0: none */

/* -- launcherd, its shims, their workers ------------------------------------------------------- */
#define MSG_SHIM_HELLO(F, E, L) /* shim -> launcherd, first on the shim's socket */                \
    F(U32, protocol, 0, UINT32_MAX)                                                                \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(U32, pid, 0, INT32_MAX)                                                                      \
    E(phase, shim_phase, SHIM_PHASE_TABLE)
#define MSG_LEASE(F, E, L)           /* launcherd -> shim */                                       \
    F(U64, until_us, 0, TIME_US_MAX) /* CLOCK_BOOTTIME, the same clock on both sides */
#define MSG_REPORT_REQUEST(F, E, L)  /* launcherd -> shim: the server is new, say it all again */  \
    F(BOOL, all, 0, 0)
#define MSG_SLOTS_KEPT(F, E, L) /* in launcherd's state directory */                               \
    F(LINE, boot_id, 1, 63)                                                                        \
    F(U32, gpus, 0, SLOTS_PER_NODE_MAX)                                                            \
    L(slots, slot_kept, SLOTS_PER_NODE_MAX)
#define MSG_WORKER_JOIN(F, E, L) /* worker -> shim, on DDP_SHIM_FD */                              \
    F(U32, rank, 0, RANKS_PER_JOB_MAX - 1)                                                         \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(BYTES, blob, 0, BLOB_BYTES_MAX)
#define MSG_WORKER_ERROR(F, E, L) /* worker -> shim: its last words, for `why` */                  \
    F(TEXT, text, 0, TAIL_BYTES_MAX - 1)

/* -- a client and the server ------------------------------------------------------------------- */
#define MSG_CLIENT_HELLO(F, E, L) /* client -> server, first; requests may follow at once */       \
    F(U32, protocol, 0, UINT32_MAX)                                                                \
    F(LINE, version, 0, 31)
#define MSG_CLIENT_WELCOME(F, E, L) /* server -> client */                                         \
    F(LINE, version, 0, 31)                                                                        \
    F(NAME, cluster, 1, 32)
#define MSG_SUBMIT(F, E, L) /* client -> server; answer: submitted or error */                     \
    F(NAME, request_id, REQUEST_ID_CHARS, REQUEST_ID_CHARS) /* the same id is the same job */      \
    F(NAME, name, 1, JOB_NAME_BYTES_MAX - 1)                                                       \
    F(U32, nodes, 1, NODES_PER_JOB_MAX)                                                            \
    F(U32, nproc_per_node, 1, SLOTS_PER_NODE_MAX)                                                  \
    F(U32, max_restarts, 0, 1000)                                                                  \
    F(U64, grace_us, 0, DURATION_US_MAX)                                                           \
    F(U64, time_limit_us, 0, DURATION_US_MAX) /* of running; 0: none */                            \
    F(TEXT, cwd, 1, 4095)                                                                          \
    F(TEXTS, argv, 1, ARGS_MAX)                                                                    \
    F(PAIRS, env, 0, ENV_MAX)
#define MSG_SUBMITTED(F, E, L) /* server -> client: it is durable */                               \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(BOOL, is_new, 0, 0)                   /* false: this request id was known */
#define MSG_JOB_GET(F, E, L)                /* client -> server; answer: job or error */           \
    F(LINE, job, 1, JOB_NAME_BYTES_MAX - 1) /* number, name (newest of it) or @last */             \
    F(U64, after_version, 0, UINT64_MAX)    /* answer once the job's version is greater; 0: now */ \
    F(U64, wait_us, 0, 60000000)            /* ... or after this long, with what is */
#define MSG_JOB_INFO(F, E, L)               /* server -> client */                                 \
    F(U64, version, 1, UINT64_MAX)                                                                 \
    L(jobs, job, 1)                                                                                \
    L(ranks, job_rank, RANKS_PER_JOB_MAX)                                                          \
    F(I32, failed_rank, -1,                                                                        \
      RANKS_PER_JOB_MAX - 1) /* first cause, of the last failed generation */                      \
    F(LINE, failed_node, 0, NODE_NAME_BYTES_MAX - 1)                                               \
    F(TEXT, tail, 0, TAIL_BYTES_MAX - 1)                                                           \
    F(TEXTS, argv, 0, ARGS_MAX)                                                                    \
    F(TEXT, cwd, 0, 4095)
#define MSG_JOB_LIST(F, E, L) /* client -> server; answer: jobs, newest last */                    \
    F(BOOL, all, 0, 0)        /* ended ones too */                                                 \
    F(U64, after_id, 0, JOB_ID_MAX)                                                                \
    F(U32, limit, 1, 500)
#define MSG_JOBS(F, E, L)                                                                          \
    L(jobs, job, 500)                                                                              \
    F(BOOL, more, 0, 0)
#define MSG_CANCEL(F, E, L) /* client -> server; answer: job_info; again is the same */            \
    F(LINE, job, 1, JOB_NAME_BYTES_MAX - 1)                                                        \
    F(U32, signal, 1, 64)                                                                          \
    F(I64, grace_us, -1, DURATION_US_MAX)     /* -1: the job's own */
#define MSG_NODE_LIST(F, E, L)                /* client -> server; answer: nodes */                \
    F(BOOL, all, 0, 0)                        /* lost ones too */                                  \
    F(LINE, node, 0, NODE_NAME_BYTES_MAX - 1) /* not empty: of that one, with all its slots */
#define MSG_NODES(F, E, L)                                                                         \
    L(nodes, node, NODES_MAX)                                                                      \
    L(slots, slot, SLOTS_LISTED_MAX) /* the closed ones; of a node that was named, all */
#define MSG_NODE_DRAIN(F, E, L) /* client -> server: no new ranks there; answer: nodes or error */ \
    F(NAME, name, 1, NODE_NAME_BYTES_MAX - 1)                                                      \
    F(U64, slot_mask, 0, UINT64_MAX) /* 0: the node as a whole */                                  \
    F(LINE, reason, 1, REASON_BYTES_MAX - 1)
#define MSG_NODE_RESUME(F, E, L) /* client -> server; answer: nodes or error */                    \
    F(NAME, name, 1, NODE_NAME_BYTES_MAX - 1)                                                      \
    F(U64, slot_mask, 0, UINT64_MAX) /* 0: whatever was drained there */
#define MSG_EVENT_LIST(F, E, L)      /* client -> server; answer: events */                        \
    F(U64, job_id, 0, JOB_ID_MAX)    /* 0: of all */                                               \
    F(U64, after_id, 0, JOB_ID_MAX)                                                                \
    F(U32, limit, 1, 200)                                                                          \
    F(U64, wait_us, 0, 60000000) /* answer once there is one, or after this long */
#define MSG_EVENTS(F, E, L) L(events, event, 200)
#define MSG_LOG_READ(F, E, L) /* client -> server -> node: bytes of one rank's log, by cursor */   \
    F(U64, request_id, 0, UINT64_MAX) /* comes back in log_data */                                 \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(U32, rank, 0, RANKS_PER_JOB_MAX - 1)                                                         \
    F(U64, offset, 0, TIME_US_MAX)                                                                 \
    F(U32, tail_lines, 0, 1000000) /* > 0: ignore offset, begin that many lines before the end */  \
    F(U32, bytes_max, 1, LOG_CHUNK_BYTES_MAX)                                                      \
    F(U64, wait_us, 0, 60000000) /* answer once there are bytes or the log is final, or then */
#define MSG_LOG_DATA(F, E, L)    /* node -> server -> client */                                    \
    F(U64, request_id, 0, UINT64_MAX)                                                              \
    F(U64, offset, 0, TIME_US_MAX) /* of the first byte here */                                    \
    F(BYTES, bytes, 0, LOG_CHUNK_BYTES_MAX)                                                        \
    F(BOOL, is_final, 0, 0) /* these are the last bytes that this log will ever have */            \
    F(LINE, problem, 0, REASON_BYTES_MAX - 1) /* not empty: why there is nothing to read */
#define MSG_ERROR(F, E, L)                    /* server -> anyone */                               \
    F(NAME, code, 1, 31) /* bad_request not_found refused full unreachable internal */             \
    F(LINE, message, 1, 511)                                                                       \
    F(LINE, hint, 0, 511)

/* P(tag, FIELDS): every part that a list is made of */
#define MSG_PART_TABLE(P)                                                                          \
    P(beat_shim, PART_BEAT_SHIM)                                                                   \
    P(slot_closed, PART_SLOT_CLOSED)                                                               \
    P(slot_kept, PART_SLOT_KEPT)                                                                   \
    P(slot, PART_SLOT)                                                                             \
    P(report_rank, PART_REPORT_RANK)                                                               \
    P(job_rank, PART_JOB_RANK)                                                                     \
    P(node, PART_NODE)                                                                             \
    P(event, PART_EVENT)                                                                           \
    P(job, PART_JOB)

/* M(ENUM_SUFFIX, word, most bytes of a frame) */
#define MSG_TABLE(M)                                                                               \
    M(NODE_HELLO, node_hello, FRAME_BYTES_MAX)                                                     \
    M(NODE_WELCOME, node_welcome, FRAME_BYTES_MAX)                                                 \
    M(BEAT, beat, FRAME_BYTES_MAX)                                                                 \
    M(BEAT_ACK, beat_ack, FRAME_BYTES_MAX)                                                         \
    M(NODE_EVENT, node_event, FRAME_BYTES_MAX)                                                     \
    M(SLOT_RESUME, slot_resume, FRAME_BYTES_MAX)                                                   \
    M(START, start, FRAME_LARGE_BYTES_MAX)                                                         \
    M(GO, go, FRAME_BYTES_MAX)                                                                     \
    M(WORLD, world, FRAME_BYTES_MAX)                                                               \
    M(STOP, stop, FRAME_BYTES_MAX)                                                                 \
    M(FORGET, forget, FRAME_BYTES_MAX)                                                             \
    M(SHIM_REPORT, shim_report, FRAME_BYTES_MAX)                                                   \
    M(REPORT_ACK, report_ack, FRAME_BYTES_MAX)                                                     \
    M(PROGRESS, progress, FRAME_BYTES_MAX)                                                         \
    M(SHIM_HELLO, shim_hello, FRAME_BYTES_MAX)                                                     \
    M(LEASE, lease, FRAME_BYTES_MAX)                                                               \
    M(REPORT_REQUEST, report_request, FRAME_BYTES_MAX)                                             \
    M(SLOTS_KEPT, slots_kept, FRAME_BYTES_MAX)                                                     \
    M(WORKER_JOIN, worker_join, FRAME_BYTES_MAX)                                                   \
    M(WORKER_ERROR, worker_error, FRAME_BYTES_MAX)                                                 \
    M(CLIENT_HELLO, client_hello, FRAME_BYTES_MAX)                                                 \
    M(CLIENT_WELCOME, client_welcome, FRAME_BYTES_MAX)                                             \
    M(SUBMIT, submit, FRAME_SUBMIT_BYTES_MAX)                                                      \
    M(SUBMITTED, submitted, FRAME_BYTES_MAX)                                                       \
    M(JOB_GET, job_get, FRAME_BYTES_MAX)                                                           \
    M(JOB_INFO, job_info, FRAME_LARGE_BYTES_MAX)                                                   \
    M(JOB_LIST, job_list, FRAME_BYTES_MAX)                                                         \
    M(JOBS, jobs, FRAME_LARGE_BYTES_MAX)                                                           \
    M(CANCEL, cancel, FRAME_BYTES_MAX)                                                             \
    M(NODE_LIST, node_list, FRAME_BYTES_MAX)                                                       \
    M(NODES, nodes, FRAME_LARGE_BYTES_MAX)                                                         \
    M(NODE_DRAIN, node_drain, FRAME_BYTES_MAX)                                                     \
    M(NODE_RESUME, node_resume, FRAME_BYTES_MAX)                                                   \
    M(EVENT_LIST, event_list, FRAME_BYTES_MAX)                                                     \
    M(EVENTS, events, FRAME_LARGE_BYTES_MAX)                                                       \
    M(LOG_READ, log_read, FRAME_BYTES_MAX)                                                         \
    M(LOG_DATA, log_data, FRAME_BYTES_MAX)                                                         \
    M(ERROR, error, FRAME_BYTES_MAX)

/* The structs: struct part_beat_shim, ..., struct msg_go, ..., made from the declarations above. */
#define MSG_CTYPE_U32 uint32_t
#define MSG_CTYPE_I32 int32_t
#define MSG_CTYPE_F64 double
#define MSG_CTYPE_U64 uint64_t
#define MSG_CTYPE_I64 int64_t
#define MSG_CTYPE_BOOL bool
#define MSG_CTYPE_TEXT const char *
#define MSG_CTYPE_LINE const char *
#define MSG_CTYPE_NAME const char *
#define MSG_CTYPE_TEXTS struct msg_text_list
#define MSG_CTYPE_PAIRS struct msg_pair_list
#define MSG_CTYPE_BYTES struct msg_bytes
#define MSG_STRUCT_F(kind, name, min, max) MSG_CTYPE_##kind name;
#define MSG_STRUCT_E(name, tag, TABLE) enum tag name;
#define MSG_STRUCT_L(name, part, max)                                                              \
    struct {                                                                                       \
        const struct part_##part *items;                                                           \
        uint32_t count;                                                                            \
    } name;
#define MSG_PART(tag, FIELDS)                                                                      \
    struct part_##tag {                                                                            \
        FIELDS(MSG_STRUCT_F, MSG_STRUCT_E, MSG_STRUCT_L)                                           \
    };
MSG_PART_TABLE(MSG_PART)
#define MSG_STRUCT(NAME, word, bytes)                                                              \
    struct msg_##word {                                                                            \
        MSG_##NAME(MSG_STRUCT_F, MSG_STRUCT_E, MSG_STRUCT_L)                                       \
    };
MSG_TABLE(MSG_STRUCT)
#undef MSG_PART
#undef MSG_STRUCT

enum msg_type {
#define MSG_TYPE(NAME, word, bytes) MSG_TYPE_##NAME,
    MSG_TABLE(MSG_TYPE)
#undef MSG_TYPE
        MSG_TYPE_COUNT
};

struct msg {
    enum msg_type type;
    uint32_t seq; /* stamped by the edge that sends; see common/link.h */
    union {
#define MSG_MEMBER(NAME, word, bytes) struct msg_##word word;
        MSG_TABLE(MSG_MEMBER)
#undef MSG_MEMBER
    };
};

struct arena; /* common/arena.h */
struct buf;   /* common/buf.h */

/* The word on the wire; "unknown" for what is no value of the enumeration. In common_words, which
 * needs no heap. */
const char *msg_type_word(enum msg_type type);
const char *job_state_word(enum job_state state);
const char *shim_phase_word(enum shim_phase phase);
const char *rank_state_word(enum rank_state state);
const char *node_state_word(enum node_state state);
const char *slot_state_word(enum slot_state state);

/* Decode one frame's payload. `msg` borrows from `arena`. Errors: STATUS_BAD_INPUT or
 * STATUS_TOO_BIG with the message, the field and what was expected in `err`; then `msg` is not to
 * be used. Pure but for the arena and cJSON's heap. */
enum status msg_decode(const char *json, size_t byte_count, struct arena *arena, struct msg *msg,
                       struct err *err);
/* Append a whole frame (length and JSON) to `out`. A value out of its range is a programmer's
 * mistake in what we make ourselves, but may come from a user (argv too long): STATUS_TOO_BIG or
 * STATUS_BAD_INPUT, without memory STATUS_MEMORY, and `out` is as before. A NULL text is the empty
 * one. NaN and infinity are out of every range, JSON has neither: who sends `progress` with a loss
 * that is not finite puts a finite value in its place. `seq` 0 is for messages kept in files; on a
 * connection they count from 1. */
enum status msg_encode(const struct msg *msg, struct buf *out, struct err *err);

#endif
