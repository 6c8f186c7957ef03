/* Every message between the programs, declared once: fields, types, ranges. docs/protocol.md has
 * the flows.
 *
 * On the wire: u32 big-endian byte count, then one JSON object {"type":"go",...} that begins with
 * the type. All fields of a message are required, unknown and repeated keys are refused; between
 * neighbouring versions that is relaxed as msg_version.h says. u64 values travel as decimal strings
 * (JSON numbers are doubles), bytes as base64.
 *
 * A decoded message borrows from the arena that it was decoded into. A message to encode borrows
 * from its maker. */
#ifndef COMMON_MSG_H
#define COMMON_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/msg_client.h"
#include "common/msg_enum.h"
#include "common/msg_pace.h"
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

/* The declaration of a message or of a part lists its fields in order, one a line:
 *
 *   F(kind, name, min, max)
 *     U32, I32    a JSON number that is an integer in min..max
 *     F64         a finite JSON number in min..max
 *     U64, I64    a decimal integer in a string, in min..max
 *     BOOL        true or false; min and max are 0
 *     TEXT        UTF-8 without NUL, min..max bytes
 *     LINE        a TEXT without control characters
 *     NAME        a TEXT of the characters A-Z a-z 0-9 . _ -
 *     TEXTS       an array of min..max TEXTs of any length
 *     PAIRS       an object of at most max TEXTs of any length
 *     BYTES       base64 of min..max bytes
 *   E(name, tag, TABLE)    a string: one of the names of that enumeration
 *   L(name, part, max)     an array of at most max of those parts */

/* clang-format off */

/* one shim as a node's beat lists it */
#define PART_BEAT_SHIM(F, E, L)                                                                    \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    E(phase, shim_phase, SHIM_PHASE_TABLE)                                                         \
    F(U64, slot_mask, 0, UINT64_MAX)             /* bit i: slot i of the node is in use by it */   \
    F(BOOL, unseen, 0, 0)                        /* it may run or not: the node cannot tell */

/* one slot of a node that must not be given out, as its beat lists it */
#define PART_SLOT_CLOSED(F, E, L)                                                                  \
    F(U32, slot, 0, SLOTS_PER_NODE_MAX - 1)                                                        \
    E(state, slot_state, SLOT_STATE_TABLE)       /* never free or busy */                          \
    F(U64, incident, 0, UINT64_MAX)              /* of drained: what slot_resume must name */      \
    F(LINE, reason, 0, REASON_BYTES_MAX - 1)
/* one shim that does not answer its launcherd although its ranks run, as a beat lists it */
#define PART_SHIM_SILENT(F, E, L)                                                                  \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(U32, pid, 0, INT32_MAX)                                                                      \
    F(U64, silent_us, 0, DURATION_US_MAX)        /* since it last said something */                \
    F(LINE, state, 0, 31)                        /* of its process: "T (stopped)" */
/* one job for which processes are kept warm on a node, as its beat lists it */
#define PART_WARM_JOB(F, E, L)                                                                     \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    E(state, warm_state, WARM_STATE_TABLE)
/* one slot as a client sees it */
#define PART_SLOT(F, E, L)                                                                         \
    F(NAME, node, 1, NODE_NAME_BYTES_MAX - 1)                                                      \
    F(U32, slot, 0, SLOTS_PER_NODE_MAX - 1)                                                        \
    E(state, slot_state, SLOT_STATE_TABLE)                                                         \
    F(U64, job_id, 0, JOB_ID_MAX)                /* on it; 0: none */                              \
    F(U32, generation, 0, GENERATION_MAX)                                                          \
    F(LINE, reason, 0, REASON_BYTES_MAX - 1)                                                       \
    F(LINE, drained_by, 0, USER_NAME_BYTES_MAX - 1) /* empty: the node itself */                   \
    F(I64, since_ms, 0, TIME_US_MAX)             /* wall clock; 0: open */

/* one rank in a shim's report */
#define PART_REPORT_RANK(F, E, L)                                                                  \
    F(U32, rank, 0, RANKS_PER_JOB_MAX - 1)                                                         \
    E(state, rank_state, RANK_STATE_TABLE)                                                         \
    F(U32, pid, 0, INT32_MAX)                                                                      \
    F(I32, exit_code, 0, 255)                                                                      \
    F(U32, signal, 0, 64)                        /* 0: none */                                     \
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
    F(BOOL, drained, 0, 0)                       /* as a whole, by an operator: */                 \
    F(LINE, drain_reason, 0, REASON_BYTES_MAX - 1)                                                 \
    F(LINE, drained_by, 0, USER_NAME_BYTES_MAX - 1)                                                \
    F(I64, drained_ms, 0, TIME_US_MAX)           /* wall clock */                                  \
    F(U32, pid, 0, INT32_MAX)                                                                      \
    F(LINE, version, 0, 31)                                                                        \
    F(I64, beat_age_us, -1, TIME_US_MAX)         /* since the last beat (hello, if refused); -1: none */ \
    F(U32, protocol, 0, UINT32_MAX)              /* what its launcherd speaks; 0: not known */     \
    F(BOOL, drains_on_term, 0, 0)                /* a restart of its launcherd stops its jobs */  \
    F(U32, reconnects, 0, UINT32_MAX)            /* in a row, without a start that went on */      \
    F(LINE, notice, 0, REASON_BYTES_MAX - 1)     /* what is wrong with it, for people; or "" */    \
    F(I64, refused_ms, 0, TIME_US_MAX)           /* since when a hello of that name is refused because of its build;
                                                  * `notice` says why, wall clock; 0: it is not */

/* the newest job of a cluster that a node has seen: a server that knows less has an old state */
#define PART_CLUSTER_SEEN(F, E, L)                                                                 \
    F(NAME, cluster, 1, 32)                                                                        \
    F(U64, job_id, 1, JOB_ID_MAX)                /* the highest */                                 \
    F(U32, generation, 0, GENERATION_MAX)        /* the highest of that job */                     \
    F(U64, lease_us, 0, DURATION_US_MAX)         /* of that cluster's server; 0: not known */

/* one principal: who may connect over TCP, with which role */
#define PART_PRINCIPAL(F, E, L)                                                                    \
    F(NAME, name, 1, NODE_NAME_BYTES_MAX - 1)     /* of a user: the name of their account */        \
    E(role, role, ROLE_TABLE)                                                                      \
    F(U32, secrets, 1, SECRETS_PER_PRINCIPAL_MAX) /* valid now; 2 while a rotation overlaps */     \
    F(BOOL, is_connected, 0, 0)                                                                    \
    F(I64, created_ms, 0, TIME_US_MAX)           /* wall clock */                                  \
    F(I64, rotated_ms, 0, TIME_US_MAX)           /* 0: never */                                    \
    F(I64, seen_ms, 0, TIME_US_MAX)              /* last proved its key; 0: never */

/* bytes of a log that were written to one stream at one time */
#define PART_LOG_RUN(F, E, L)                                                                      \
    F(U32, bytes, 1, LOG_CHUNK_BYTES_MAX)                                                          \
    F(BOOL, is_error, 0, 0)                      /* stderr; else stdout */                         \
    F(I64, at_ms, 0, TIME_US_MAX)                /* wall clock of the node, within 0.1 s */

/* Events of a job about one of its nodes begin with this. They do not say why a generation
 * ended. */
#define EVENT_ABOUT_NODE "its node "
/* The problem of a question (node_data) to a node that has let its time pass. */
#define NODE_IS_SILENT "the node does not answer"
/* The last bits of a node_ask's id tell the askers apart, and whether it is an administrator. */
#define NODE_ASKER_BITS 0xffffu
#define NODE_ASKER_ADMIN 0x10000u
#define NODE_ASKER_SHIFT 17
/* The problem of a question for which the node has no place now. */
#define NODE_ANSWERS_OTHERS "it answers others; ask again in a moment"
#define NODE_ANSWERS_YOU "you have 4 checks running there already; wait until one has ended"
/* The notice of a node whose name a second launcherd has asked for begins with this. */
#define NOTICE_OF_TWIN "another launcherd wants this name: "

/* one event, for people */
#define PART_EVENT(F, E, L)                                                                        \
    F(U64, id, 1, JOB_ID_MAX)                                                                      \
    F(I64, at_ms, 0, TIME_US_MAX)                /* wall clock, since 1970 */                      \
    F(U64, job_id, 0, JOB_ID_MAX)                /* 0: about no job */                             \
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
    F(U32, restarts_without_progress, 0, GENERATION_MAX) /* what counts for max_restarts */        \
    F(U32, nodes, 1, NODES_PER_JOB_MAX)                                                            \
    F(U32, nodes_min, 0, NODES_PER_JOB_MAX)      /* it may run on so few; 0: not said */           \
    F(U32, nodes_max, 0, NODES_PER_JOB_MAX)                                                        \
    F(U32, nproc_per_node, 1, SLOTS_PER_NODE_MAX)                                                  \
    F(U32, ranks_running, 0, RANKS_PER_JOB_MAX)                                                    \
    F(LINE, where, 0, REASON_BYTES_MAX - 1)      /* "node[0-1]"; empty while nowhere */            \
    F(LINE, reason, 0, REASON_BYTES_MAX - 1)     /* why it waits, restarts or failed; what does not answer */ \
    F(BOOL, ended, 0, 0)                                                                           \
    F(I32, exit_code, 0, 255)                    /* the first failing rank's, or 128+N */          \
    F(U32, signal, 0, 64)                                                                          \
    F(BOOL, exit_is_ours, 0, 0)                  /* 124..127, cancelled: not its own */            \
    F(I64, submitted_ms, 0, TIME_US_MAX)                                                           \
    F(I64, started_ms, 0, TIME_US_MAX)           /* of generation 1; 0: not yet */                 \
    F(I64, ended_ms, 0, TIME_US_MAX)                                                               \
    F(U32, epoch, 0, UINT32_MAX)                 /* rank 0's newest progress; all 0: none yet */   \
    F(U32, epochs, 0, UINT32_MAX)                                                                  \
    F(U64, step, 0, JOB_ID_MAX)                  /* global step */                                 \
    F(U64, steps, 0, JOB_ID_MAX)                 /* of the whole training; 0: unknown */           \
    F(F64, loss, -1e300, 1e300)                                                                    \
    F(F64, samples_per_s, 0, 1e300)                                                                \
    F(U64, checkpoint_step, 0, JOB_ID_MAX)                                                         \
    F(U64, array_job, 0, JOB_ID_MAX)             /* the first job of its array; 0: of none */      \
    F(U32, array_index, 0, ARRAY_INDEX_MAX)                                                        \
    F(U32, array_count, 0, ARRAY_JOBS_MAX)\
    F(LINE, straggler, 0, REASON_BYTES_MAX - 1)  /* the slowest of its slow ranks, for people; or "" */ \
    F(U32, spares, 0, NODES_PER_JOB_MAX)         /* nodes that it wants held beside its own, */    \
    F(U32, spares_held, 0, NODES_PER_JOB_MAX)    /* and has; */                                    \
    F(U32, spares_warm, 0, NODES_PER_JOB_MAX)    /* those on which processes of it wait */         \
    F(U32, progress_generation, 0, GENERATION_MAX) /* whose ranks told epoch to samples_per_s; 0: not said */

/* -- a node and the server --------------------------------------------------------------------- */

/* node -> server, first */
#define MSG_NODE_HELLO(F, E, L)                                                                    \
    F(U32, protocol, 0, UINT32_MAX)                                                                \
    F(LINE, version, 0, 31)                                                                        \
    F(NAME, name, 1, NODE_NAME_BYTES_MAX - 1)                                                      \
    F(LINE, boot_id, 1, 63)                                                                        \
    F(U64, instance, 0, UINT64_MAX)              /* random for each launcherd process */           \
    F(U32, pid, 0, INT32_MAX)                                                                      \
    F(LINE, address, 1, ADDRESS_BYTES_MAX - 1)   /* where its workers can be reached */            \
    F(U32, slots, 1, SLOTS_PER_NODE_MAX)                                                           \
    F(U32, gpus, 0, SLOTS_PER_NODE_MAX)          /* 0: slots are CPU shares */                     \
    L(shims, beat_shim, SHIMS_PER_NODE_MAX)                                                        \
    L(closed, slot_closed, SLOTS_PER_NODE_MAX)                                                     \
    F(BOOL, drains_on_term, 0, 0)                /* SIGTERM of its launcherd makes it leave */     \
    F(LINE, schema, 0, SCHEMA_BYTES_MAX - 1)     /* of its messages: common/msg_schema.h */        \
    F(LINE, machine_id, 0, IDENTITY_BYTES_MAX - 1) /* of the machine; empty: not known */          \
    F(LINE, state_id, 0, IDENTITY_BYTES_MAX - 1) /* of its state directory; empty: not known */    \
    F(U64, up_us, 0, TIME_US_MAX)                /* since its kernel started; 0: not known */      \
    L(seen, cluster_seen, CLUSTERS_SEEN_MAX)     /* the newest job of each cluster */

/* server -> node */
#define MSG_NODE_WELCOME(F, E, L)                                                                  \
    F(NAME, cluster, 1, 32)                      /* random, kept in the server's state */          \
    F(U32, beat_interval_us, 1000, 60000000)                                                       \
    F(U64, lease_us, 1000, DURATION_US_MAX)                                                        \
    F(U32, protocol, 0, UINT32_MAX)              /* the server's */                                \
    F(LINE, schema, 0, SCHEMA_BYTES_MAX - 1)     /* the server's */

/* node -> server, every beat_interval_us: what is here */
#define MSG_BEAT(F, E, L)                                                                          \
    F(U64, sent_us, 0, TIME_US_MAX)              /* the node's boot clock */                       \
    L(shims, beat_shim, SHIMS_PER_NODE_MAX)                                                        \
    L(closed, slot_closed, SLOTS_PER_NODE_MAX)                                                     \
    F(BOOL, leaving, 0, 0)                       /* it ends once no job is on it: stop them */     \
    L(warm, warm_job, SLOTS_PER_NODE_MAX)        /* until their processes are gone */              \
    L(silent, shim_silent, SHIMS_SILENT_MAX)

/* server -> node; the lease counts from `sent_us` */
#define MSG_BEAT_ACK(F, E, L)                                                                      \
    F(U64, sent_us, 0, TIME_US_MAX)

/* node -> server: for people; may be lost */
#define MSG_NODE_EVENT(F, E, L)                                                                    \
    F(U32, slot, 0, SLOTS_PER_NODE_MAX - 1)                                                        \
    F(LINE, text, 1, REASON_BYTES_MAX - 1)

/* server -> node: an operator has resumed the slot after this fault */
#define MSG_SLOT_RESUME(F, E, L)                                                                   \
    F(U32, slot, 0, SLOTS_PER_NODE_MAX - 1)                                                        \
    F(U64, incident, 0, UINT64_MAX)              /* of the fault: a newer one stays */

/* server -> node: prepare one shim; kept in its run directory */
#define MSG_START(F, E, L)                                                                         \
    F(NAME, cluster, 1, 32)                                                                        \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(NAME, name, 1, JOB_NAME_BYTES_MAX - 1)                                                       \
    F(LINE, user, 0, USER_NAME_BYTES_MAX - 1)    /* runs as the account of this name */            \
    F(U32, node_rank, 0, NODES_PER_JOB_MAX - 1)                                                    \
    F(U32, node_count, 1, NODES_PER_JOB_MAX)                                                       \
    F(U32, rank_base, 0, RANKS_PER_JOB_MAX - 1)                                                    \
    F(U32, local_count, 1, SLOTS_PER_NODE_MAX)                                                     \
    F(U32, world, 1, RANKS_PER_JOB_MAX)                                                            \
    F(U64, slot_mask, 1, UINT64_MAX)             /* local_count bits; local rank i has the i-th */ \
    F(U32, restart_count, 0, GENERATION_MAX)                                                       \
    F(U32, max_restarts, 0, GENERATION_MAX)                                                        \
    F(U64, checkpoint_step, 0, JOB_ID_MAX) /* the newest that is known to be committed; 0: none */ \
    F(U64, grace_us, 0, DURATION_US_MAX)                                                           \
    F(TEXT, cwd, 1, 4095)                        /* an absolute path, or "stage:HASH" */          \
    F(TEXTS, argv, 1, ARGS_MAX)                                                                    \
    F(PAIRS, env, 0, ENV_MAX)                                                                      \
    F(PAIRS, nodes, 0, NODES_PER_JOB_MAX) /* node rank 0 gets all nodes and their addresses, the others get that one */ \
    F(PAIRS, launch, 0, LAUNCH_MAX)              /* as the submit has it: common/launch.h */       \
    F(U64, array_job, 0, JOB_ID_MAX)             /* 0: no job of an array */                       \
    F(U32, array_index, 0, ARRAY_INDEX_MAX)                                                        \
    F(U32, array_count, 0, ARRAY_JOBS_MAX)                                                         \
    F(U32, array_min, 0, ARRAY_INDEX_MAX)        /* of its indices */                              \
    F(U32, array_max, 0, ARRAY_INDEX_MAX)                                                          \
    F(U64, warn_after_us, 0, DURATION_US_MAX)    /* since its ranks run on the node: */            \
    F(U32, warn_signal, 0, 64)                   /* this signal to them, once; 0: none */          \
    F(I64, submitted_ms, 0, TIME_US_MAX)         /* tells the job from another with its number */

/* server -> node: please keep processes warm for a job that has a spare on this node; may be
 * ignored. All fields as in `start` */
#define MSG_WARM(F, E, L)                                                                          \
    F(NAME, cluster, 1, 32)                                                                        \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(LINE, user, 0, USER_NAME_BYTES_MAX - 1)                                                      \
    F(U64, slot_mask, 1, UINT64_MAX)                                                               \
    F(TEXT, cwd, 1, 4095)                                                                          \
    F(TEXTS, argv, 1, ARGS_MAX)                                                                    \
    F(PAIRS, env, 0, ENV_MAX)                                                                      \
    F(PAIRS, launch, 0, LAUNCH_MAX)                                                                \
    F(I64, submitted_ms, 0, TIME_US_MAX)

/* server -> node: the job has no spare on this node any more */
#define MSG_COOL(F, E, L)                                                                          \
    F(U64, job_id, 1, JOB_ID_MAX)

/* server -> node -> shim: every shim of the generation is ready: spawn */
#define MSG_GO(F, E, L)                                                                            \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(LINE, master_addr, 1, ADDRESS_BYTES_MAX - 1)                                                 \
    F(U32, master_port, 1, 65535)

/* server -> node -> shim -> every worker: all have joined */
#define MSG_WORLD(F, E, L)                                                                         \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(BYTES, blob, 0, BLOB_BYTES_MAX)            /* rank 0's */

/* server -> node -> shim */
#define MSG_STOP(F, E, L)                                                                          \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(U32, signal, 1, 64)                                                                          \
    F(U64, grace_us, 0, DURATION_US_MAX)         /* from `signal` to SIGKILL; 0: at once */        \
    F(LINE, reason, 0, REASON_BYTES_MAX - 1)

/* server -> node -> shim: the end is recorded; the shim exits */
#define MSG_FORGET(F, E, L)                                                                        \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)

/* shim -> node -> server: the state of one shim; sent until it is acked */
#define MSG_SHIM_REPORT(F, E, L)                                                                   \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(U32, revision, 1, UINT32_MAX)              /* grows with every change of the rest */         \
    E(phase, shim_phase, SHIM_PHASE_TABLE)                                                         \
    F(U32, master_port, 0, 65535)                /* reserved here; that of node rank 0 is used */  \
    F(BYTES, blob, 0, BLOB_BYTES_MAX)            /* rank 0's, once it has joined */                \
    F(BOOL, has_world, 0, 0)                     /* `world` has arrived */                         \
    F(I32, failed_rank, -1, RANKS_PER_JOB_MAX - 1) /* first to fail on this node; -1: none */      \
    F(U64, failed_age_us, 0, DURATION_US_MAX)    /* from its failure to sending this */            \
    F(I32, failed_errno_exit, 0, 127)            /* 126, 127: it could not be run; else 0 */       \
    E(failed_class, failure_class, FAILURE_CLASS_TABLE) /* when failed or lost */                  \
    F(LINE, cause, 0, REASON_BYTES_MAX - 1)      /* as text, when failed or lost */                \
    F(TEXT, tail, 0, TAIL_BYTES_MAX - 1)         /* last lines of failed_rank */                   \
    F(TEXT, error, 0, TAIL_BYTES_MAX - 1)        /* its exception: message, end of the traceback */ \
    F(BOOL, failed_oom, 0, 0)                    /* the kernel killed it as memory ran out */      \
    F(LINE, failed_core, 0, REASON_BYTES_MAX - 1) /* where its core file is, or who has it */      \
    F(BOOL, warm_late, 0, 0)                     /* warm processes did not take their ranks in time */ \
    F(BOOL, failed_by_peer, 0, 0)                /* failed_rank says that it lost another rank */  \
    F(LINE, notice, 0, REASON_BYTES_MAX - 1)     /* its end is not stored on that node, and why; or what its logs lack; or "" */ \
    L(ranks, report_rank, SLOTS_PER_NODE_MAX)

/* server -> node -> shim */
#define MSG_REPORT_ACK(F, E, L)                                                                    \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(U32, revision, 1, UINT32_MAX)

/* -- launcherd, its shims, their workers ------------------------------------------------------- */

/* shim -> launcherd, first on the shim's socket */
#define MSG_SHIM_HELLO(F, E, L)                                                                    \
    F(U32, protocol, 0, UINT32_MAX)                                                                \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(U32, pid, 0, INT32_MAX)                                                                      \
    E(phase, shim_phase, SHIM_PHASE_TABLE)                                                         \
    F(LINE, schema, 0, SCHEMA_BYTES_MAX - 1)                                                       \
    F(BOOL, lease_over, 0, 0) /* it ends its ranks because of that */

/* launcherd -> shim */
#define MSG_LEASE(F, E, L)                                                                         \
    F(U64, until_us, 0, TIME_US_MAX)             /* CLOCK_BOOTTIME, the same clock on both sides */

/* launcherd -> shim: the server is new, send the whole report again (`all`); or a shim_hello, to show that it goes on */
#define MSG_REPORT_REQUEST(F, E, L)                                                                \
    F(BOOL, all, 0, 0)

/* worker -> shim, on DDP_SHIM_FD */
#define MSG_WORKER_JOIN(F, E, L)                                                                   \
    F(U32, rank, 0, RANKS_PER_JOB_MAX - 1)                                                         \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(BYTES, blob, 0, BLOB_BYTES_MAX)

/* worker -> shim: its last error, for `ddpctl why` */
#define MSG_WORKER_ERROR(F, E, L)                                                                  \
    F(TEXT, text, 0, TAIL_BYTES_MAX - 1)

/* shim -> worker, before each signal of a stop */
#define MSG_WORKER_STOP(F, E, L)                                                                   \
    F(U32, signal, 1, 64)                                                                          \
    F(U64, kill_at_us, 0, TIME_US_MAX)           /* CLOCK_BOOTTIME: SIGKILL follows then */

/* one of several servers */
#define PART_SERVER(F, E, L)                                                                       \
    F(LINE, address, 1, SERVER_ADDRESS_BYTES_MAX - 1) /* unix:PATH or HOST:PORT */                 \
    F(LINE, host, 0, 255)                        /* the name of its machine */                     \
    F(BOOL, leads, 0, 0)

/* P(tag, FIELDS): every part that a list is made of */
#define MSG_PART_TABLE(P)                                                                          \
    P(beat_shim, PART_BEAT_SHIM)                                                                   \
    P(slot_closed, PART_SLOT_CLOSED)                                                               \
    P(cluster_seen, PART_CLUSTER_SEEN)                                                             \
    P(shim_silent, PART_SHIM_SILENT)                                                               \
    P(warm_job, PART_WARM_JOB)                                                                     \
    P(slot, PART_SLOT)                                                                             \
    P(report_rank, PART_REPORT_RANK)                                                               \
    P(job_rank, PART_JOB_RANK)                                                                     \
    P(principal, PART_PRINCIPAL)                                                                   \
    P(node, PART_NODE)                                                                             \
    P(failure, PART_FAILURE)                                                                       \
    P(rank_look, PART_RANK_LOOK)                                                                   \
    P(rank_move, PART_RANK_MOVE)                                                                   \
    P(failed_rank, PART_FAILED_RANK)                                                               \
    P(log_run, PART_LOG_RUN)                                                                       \
    P(server, PART_SERVER)                                                                         \
    P(event, PART_EVENT)                                                                           \
    P(job, PART_JOB)

/* M(ENUM_SUFFIX, message, most bytes of a frame) */
#define MSG_TABLE(M)                                                                               \
    M(NODE_HELLO, node_hello, FRAME_BYTES_MAX)                                                     \
    M(NODE_WELCOME, node_welcome, FRAME_BYTES_MAX)                                                 \
    M(BEAT, beat, FRAME_BYTES_MAX)                                                                 \
    M(BEAT_ACK, beat_ack, FRAME_BYTES_MAX)                                                         \
    M(NODE_EVENT, node_event, FRAME_BYTES_MAX)                                                     \
    M(SLOT_RESUME, slot_resume, FRAME_BYTES_MAX)                                                   \
    M(START, start, FRAME_LARGE_BYTES_MAX)                                                         \
    M(WARM, warm, FRAME_LARGE_BYTES_MAX)                                                           \
    M(COOL, cool, FRAME_BYTES_MAX)                                                                 \
    M(GO, go, FRAME_BYTES_MAX)                                                                     \
    M(WORLD, world, FRAME_BYTES_MAX)                                                               \
    M(STOP, stop, FRAME_BYTES_MAX)                                                                 \
    M(FORGET, forget, FRAME_BYTES_MAX)                                                             \
    M(SHIM_REPORT, shim_report, FRAME_BYTES_MAX)                                                   \
    M(REPORT_ACK, report_ack, FRAME_BYTES_MAX)                                                     \
    M(LOOK, look, FRAME_BYTES_MAX)                                                                 \
    M(LOOKED, looked, FRAME_CHUNK_BYTES_MAX)                                                       \
    M(PROGRESS, progress, FRAME_BYTES_MAX)                                                         \
    M(SHIM_HELLO, shim_hello, FRAME_BYTES_MAX)                                                     \
    M(LEASE, lease, FRAME_BYTES_MAX)                                                               \
    M(REPORT_REQUEST, report_request, FRAME_BYTES_MAX)                                             \
    M(WORKER_JOIN, worker_join, FRAME_BYTES_MAX)                                                   \
    M(WORKER_ERROR, worker_error, FRAME_BYTES_MAX)                                                 \
    M(WORKER_STOP, worker_stop, FRAME_BYTES_MAX)                                                   \
    M(CLIENT_HELLO, client_hello, FRAME_BYTES_MAX)                                                 \
    M(CLIENT_WELCOME, client_welcome, FRAME_BYTES_MAX)                                             \
    M(SUBMIT, submit, FRAME_SUBMIT_BYTES_MAX)                                                      \
    M(SUBMITTED, submitted, FRAME_BYTES_MAX)                                                       \
    M(JOB_GET, job_get, FRAME_BYTES_MAX)                                                           \
    M(JOB_INFO, job_info, FRAME_LARGE_BYTES_MAX)                                                   \
    M(WHY_GET, why_get, FRAME_BYTES_MAX)                                                           \
    M(WHY_INFO, why_info, FRAME_LARGE_BYTES_MAX)                                                   \
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
    M(NODE_READ, node_read, FRAME_BYTES_MAX)                                                       \
    M(NODE_ASK, node_ask, FRAME_LARGE_BYTES_MAX)                                                   \
    M(NODE_DATA, node_data, FRAME_CHUNK_BYTES_MAX)                                                 \
    M(INPUT, input, FRAME_BYTES_MAX)                                                               \
    M(INPUT_STATE, input_state, FRAME_BYTES_MAX)                                                   \
    M(SERVER_GET, server_get, FRAME_BYTES_MAX)                                                     \
    M(KEYS_CHECKED, keys_checked, FRAME_BYTES_MAX)                                                 \
    M(SERVER_INFO, server_info, FRAME_BYTES_MAX)                                                   \
    M(STAGE_PUT, stage_put, FRAME_CHUNK_BYTES_MAX)                                                 \
    M(STAGE_STATE, stage_state, FRAME_BYTES_MAX)                                                   \
    M(STAGE_GET, stage_get, FRAME_BYTES_MAX)                                                       \
    M(STAGE_DATA, stage_data, FRAME_CHUNK_BYTES_MAX)                                               \
    M(PRINCIPAL_ADD, principal_add, FRAME_BYTES_MAX)                                               \
    M(PRINCIPAL_ROTATE, principal_rotate, FRAME_BYTES_MAX)                                         \
    M(PRINCIPAL_REMOVE, principal_remove, FRAME_BYTES_MAX)                                         \
    M(PRINCIPAL_LIST, principal_list, FRAME_BYTES_MAX)                                             \
    M(PRINCIPALS, principals, FRAME_LARGE_BYTES_MAX)                                               \
    M(PRINCIPAL_KEY, principal_key, FRAME_BYTES_MAX)                                               \
    M(REFER, refer, FRAME_BYTES_MAX)                                                               \
    M(ERROR, error, FRAME_BYTES_MAX)

/* clang-format on */

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
#define MSG_STRUCT(NAME, message, bytes)                                                           \
    struct msg_##message {                                                                         \
        MSG_##NAME(MSG_STRUCT_F, MSG_STRUCT_E, MSG_STRUCT_L)                                       \
    };
MSG_TABLE(MSG_STRUCT)
#undef MSG_PART
#undef MSG_STRUCT

enum msg_type {
#define MSG_TYPE(NAME, message, bytes) MSG_TYPE_##NAME,
    MSG_TABLE(MSG_TYPE)
#undef MSG_TYPE
        MSG_TYPE_COUNT
};

struct msg {
    enum msg_type type;
    union {
#define MSG_MEMBER(NAME, message, bytes) struct msg_##message message;
        MSG_TABLE(MSG_MEMBER)
#undef MSG_MEMBER
    };
};

struct arena;         /* common/arena.h */
struct buf;           /* common/buf.h */
struct msg_protocols; /* common/msg_version.h */

/* The name on the wire; "unknown" for an invalid type. In msg_names.c, which needs no heap. */
const char *msg_type_name(enum msg_type type);

/* Decodes the payload of one frame. `msg` borrows from `arena`. Errors: STATUS_BAD_INPUT or
 * STATUS_TOO_BIG; `err` names the message, the field and what was expected, and `msg` must not be
 * used. Pure, apart from the arena and cJSON's heap. */
enum status msg_decode(const char *json, size_t byte_count, struct arena *arena, struct msg *msg,
                       struct err *err);
/* The same for a peer that may have a neighbouring version (msg_version.h). A message that contains
 * its sender's version sets `protocols->peer`. */
enum status msg_decode_between(const char *json, size_t byte_count, struct msg_protocols *protocols,
                               struct arena *arena, struct msg *msg, struct err *err);
/* The same for a message in a file, which an earlier or later version may have written: unknown
 * fields are skipped. A missing field is 0, false, the first value, or empty, if its range allows
 * that. */
enum status msg_decode_stored(const char *json, size_t byte_count, struct arena *arena,
                              struct msg *msg, struct err *err);
/* Appends a whole frame (length and JSON) to `out`. A value out of range is a programmer's mistake
 * if we made it, but may also come from a user (argv too long). Errors: STATUS_TOO_BIG,
 * STATUS_BAD_INPUT, STATUS_MEMORY; `out` is unchanged then. A NULL text counts as empty. NaN and
 * infinity are always out of range, since JSON has neither: a sender of `progress` with a loss that
 * is not finite replaces it by a finite value. */
enum status msg_encode(const struct msg *msg, struct buf *out, struct err *err);
/* The same for a peer that may have an earlier version: fields that it does not know are left
 * out. */
enum status msg_encode_between(const struct msg *msg, const struct msg_protocols *protocols,
                               struct buf *out, struct err *err);

#endif
