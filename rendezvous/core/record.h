/* The record of one job, declared once: the core keeps it, the store has it as a row, and clients
 * see a part of it. */
#ifndef RENDEZVOUS_CORE_RECORD_H
#define RENDEZVOUS_CORE_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/msg.h"

#define NODE_FAULTS_MAX 8u /* how many faulty nodes a job remembers: the newest */
#define NODE_FAULTS_BYTES_MAX (NODE_FAULTS_MAX * (NODE_NAME_BYTES_MAX + 2u))

/* X(kind, field, column, audience, bytes)
 *   kind      U32 I32 U64 I64 F64 BOOL STATE TEXT
 *   field     of struct rdzv_record, and of struct part_job where it is SHOWN
 *   column    of the store's table `jobs`
 *   audience  SHOWN: a job's summary has it; KEPT: for the server alone
 *   bytes     of a TEXT, with its NUL */
/* clang-format off */
#define RDZV_RECORD_TABLE(X)                                                                       \
    X(U64,   job_id,                    id,                        SHOWN, 0)                       \
    X(TEXT,  request_id,                request_id,                KEPT,  REQUEST_ID_CHARS + 1)    \
    X(TEXT,  name,                      name,                      SHOWN, JOB_NAME_BYTES_MAX)      \
    X(TEXT,  user,                      user,                      SHOWN, USER_NAME_BYTES_MAX)     \
    X(U32,   uid,                       uid,                       KEPT,  0)                       \
    X(U32,   nodes,                     nodes,                     SHOWN, 0)                       \
    X(U32,   nodes_min,                 nodes_min,                 SHOWN, 0) /* see below */       \
    X(U32,   nodes_max,                 nodes_max,                 SHOWN,  0)                       \
    X(U32,   spares,                    spares,                    SHOWN, 0)                       \
    X(BOOL,  replace_stragglers,        replace_stragglers,        KEPT,  0)                       \
    X(U64,   hang_timeout_us,           hang_timeout_us,           KEPT,  0)                       \
    X(U64,   warn_us,                   warn_us,                   KEPT,  0)                       \
    X(U32,   warn_signal,               warn_signal,               KEPT,  0)                       \
    X(U64,   after_job,                 after_job,                 KEPT,  0) /* its id; 0: none */ \
    X(U64,   after_last,                after_last,                KEPT,  0) /* see below */       \
    X(BOOL,  after_any,                 after_any,                 KEPT,  0)                       \
    X(U64,   array_job,                 array_job,                 SHOWN, 0) /* see below */       \
    X(U32,   array_index,               array_index,               SHOWN, 0)                       \
    X(U32,   array_count,               array_count,               SHOWN, 0)                       \
    X(U32,   array_min,                 array_min,                 KEPT,  0)                       \
    X(U32,   array_max,                 array_max,                 KEPT,  0)                       \
    X(U32,   array_at_most,             array_at_most,             KEPT,  0) /* 0: all */          \
    X(U32,   nproc_per_node,            nproc_per_node,            SHOWN, 0)                       \
    X(U32,   max_restarts,              max_restarts,              SHOWN, 0)                       \
    X(BOOL,  restarts_given,            restarts_given,            KEPT,  0) /* see below */       \
    X(U64,   grace_us,                  grace_us,                  KEPT,  0)                       \
    X(U64,   time_limit_us,             time_limit_us,             KEPT,  0)                       \
    X(BOOL,  requeue_at_limit,          requeue_at_limit,          KEPT,  0)                       \
    X(U64,   limited_step,              limited_step,              KEPT,  0) /* see below */       \
    X(I64,   requeued_ms,               requeued_ms,               KEPT,  0) /* see below */       \
    X(I32,   priority,                  priority,                  KEPT,  0)                       \
    X(I64,   limit_at_ms,               limit_at_ms,               KEPT,  0) /* see below */       \
    X(STATE, state,                     state,                     SHOWN, 0)                       \
    X(U32,   generation,                generation,                SHOWN, 0) /* 0: none yet */     \
    X(U32,   restarts,                  restarts,                  SHOWN, 0) /* after the first */ \
    X(U32,   restarts_without_progress, restarts_without_progress, SHOWN, 0)                       \
    X(U64,   checkpoint_step,           checkpoint_step,           SHOWN, 0) /* newest */          \
    X(U64,   resumed_step,              resumed_step,              KEPT,  0) /* see below */       \
    X(BOOL,  cancel_wanted,             cancel_wanted,             KEPT,  0)                       \
    X(U32,   stopping,                  stopping,                  KEPT,  0) /* see below */       \
    X(U32,   stop_signal,               stop_signal,               KEPT,  0)                       \
    X(BOOL,  planned,                   planned,                   KEPT,  0) /* see below */       \
    X(U64,   preempted_by,              preempted_by,              KEPT,  0) /* see below */       \
    X(U32,   preempted_at,              preempted_at,              KEPT,  0)                       \
    X(U64,   stop_grace_us,             stop_grace_us,             KEPT,  0)                       \
    X(BOOL,  cannot_start,              cannot_start,              KEPT,  0)                       \
    X(U32,   errno_exit,                errno_exit,                KEPT,  0)                       \
    X(I32,   failed_exit,               failed_exit,               KEPT,  0)                       \
    X(U32,   failed_signal,             failed_signal,             KEPT,  0)                       \
    X(U32,   failed_class,              failed_class,              KEPT,  0)                       \
    X(U32,   node_failures,             node_failures,             KEPT,  0) /* see below */       \
    X(U64,   early_failure,             early_failure,             KEPT,  0) /* see below */       \
    X(I64,   alike_ms,                  alike_ms,                  KEPT,  0) /* see below */       \
    X(TEXT,  node_faults,               node_faults,               KEPT,  NODE_FAULTS_BYTES_MAX)   \
    X(U64,   same_failure,              same_failure,              KEPT,  0) /* see below */       \
    X(U64,   same_step,                 same_step,                 KEPT,  0)                       \
    X(U32,   same_count,                same_count,                KEPT,  0)                       \
    X(U32,   told_generation,           told_generation,           KEPT,  0) /* see below */       \
    X(I64,   running_ms,                running_ms,                KEPT,  0)                       \
    X(BOOL,  waits_for_nodes,           waits_for_nodes,           KEPT,  0) /* --wait-for-nodes */ \
    X(I64,   retry_at_ms,               retry_at_ms,               KEPT,  0)                       \
    X(U32,   over_generation,           over_generation,           KEPT,  0) /* see below */       \
    X(TEXT,  reason,                    reason,                    SHOWN, REASON_BYTES_MAX)        \
    X(I32,   exit_code,                 exit_code,                 SHOWN, 0) /* once ended */      \
    X(U32,   signal,                    signal,                    SHOWN, 0)                       \
    X(BOOL,  exit_is_ours,              exit_is_ours,              SHOWN, 0)                       \
    X(I64,   submitted_ms,              submitted_ms,              SHOWN, 0) /* wall clock */      \
    X(I64,   started_ms,                started_ms,                SHOWN, 0)                       \
    X(I64,   ended_ms,                  ended_ms,                  SHOWN, 0)                       \
    X(I32,   failed_rank,               failed_rank,               KEPT,  0) /* see below */       \
    X(TEXT,  failed_node,               failed_node,               KEPT,  NODE_NAME_BYTES_MAX)     \
    X(TEXT,  tail,                      tail,                      KEPT,  TAIL_BYTES_MAX)          \
    X(TEXT,  where,                     place,                     SHOWN, REASON_BYTES_MAX)        \
    X(U32,   epoch,                     epoch,                     SHOWN, 0) /* newest progress */ \
    X(U32,   epochs,                    epochs,                    SHOWN, 0)                       \
    X(U64,   step,                      step,                      SHOWN, 0)                       \
    X(U64,   steps,                     steps,                     SHOWN, 0)                       \
    X(F64,   loss,                      loss,                      SHOWN, 0)                       \
    X(F64,   samples_per_s,             samples_per_s,             SHOWN, 0)
/* nodes: of the current generation, or of the next one. nodes_min..nodes_max: as requested.
 * after_job..after_last: the ids of the jobs whose end it waits for (several: an array); 0 once all have
 *   ended. While the job waits, `tail` has further ids (after_list.h); it is not used for anything else then.
 * array_job: the first job of its array, whose id names the array; the others have the next ids. 0: no array.
 * array_min..array_max: the range of the array's indices.
 * stopping: enum stop_cause of the current generation. stop_signal and stop_grace_us are sent to its nodes.
 *   cannot_start, errno_exit, failed_exit and failed_signal say what its failure means for the job
 *   (generation.c). With these a server that starts in the middle of a stop can continue it.
 * preempted_by: the job that the newest generation has ended for, or is being ended for; 0: none.
 *   preempted_at: the generation that job had then (preempt.h).
 * planned: the newest generation ended as planned, without a failure, so that the next one can follow.
 * failed_class: enum failure_class of the failure. node_failures: restarts since the newest checkpoint that
 *   were not for a failure of the program. node_faults: the nodes that failed it (failure.c).
 * early_failure: a hash of the exit code and last line of the newest failure of the program, if it came right
 *   after the start (failure_early); its bit 1 is set if the last two were the same. 2: the program has run
 *   for longer once. 0: neither.
 * restarts_given: max_restarts is what the user has asked for, and not the default.
 * alike_ms: wall clock, when the first of the newest failures came that are the same (failure_early,
 *   failure_same).
 * resumed_step: the checkpoint that the newest generation resumed from.
 * same_failure: a hash of the rank, exit and last line of the newest failure of the program. same_step: the
 *   last step reported before it. same_count: how many in a row were the same (failure_same).
 * told_generation: the newest generation whose ranks have reported a step (hang.h).
 * running_ms: wall clock, when all ranks of the newest generation that got so far were running; 0: none yet.
 * retry_at_ms: wall clock, restarting: not before this; 0: at once.
 * over_generation: the newest generation of which nothing can run any more without a fence of its own (fence.h). A job
 *   that waits to restart, with an older one here, may have to wait for the lease of a lost node.
 * limited_step: the newest checkpoint when the job last reached its time limit and was queued again.
 * requeued_ms: when that was, by the wall clock; 0: never.
 * limit_at_ms: wall clock, when the running generation reaches its time limit; 0: no limit.
 * failed_rank, failed_node, tail: the first cause of the last failed generation. Rank -1: no failure, or no
 *   rank was the cause.
 * where: the nodes of the newest generation, "node0,node1". */

/* What a launcherd says of itself beside its node's name (identity.h): hashes of the machine's id, of
 * this boot's, and of its state directory's. 0: it has not said. */
struct rdzv_identity {
    uint64_t machine, boot, state;
};

/* One node's share of a generation. */
struct rdzv_part {
    char node[NODE_NAME_BYTES_MAX];
    struct rdzv_identity identity; /* of the launcherd that the part was given to */
    uint32_t rank_base;
    uint32_t local_count;
    uint64_t slot_mask; /* local rank i has the i-th set bit */
};

#define RDZV_FIELD_U32(field, bytes) uint32_t field;
#define RDZV_FIELD_I32(field, bytes) int32_t field;
#define RDZV_FIELD_U64(field, bytes) uint64_t field;
#define RDZV_FIELD_I64(field, bytes) int64_t field;
#define RDZV_FIELD_F64(field, bytes) double field;
#define RDZV_FIELD_BOOL(field, bytes) bool field;
#define RDZV_FIELD_STATE(field, bytes) enum job_state field;
#define RDZV_FIELD_TEXT(field, bytes) char field[bytes];
#define RDZV_FIELD(kind, field, column, audience, bytes) RDZV_FIELD_##kind(field, bytes)
struct rdzv_record {
    RDZV_RECORD_TABLE(RDZV_FIELD)
    uint32_t part_count;     /* of the current generation; 0 while it has none */
    struct rdzv_part *parts; /* [part_count], at most NODES_PER_JOB_MAX; not stored in the record */
};
#undef RDZV_FIELD
/* clang-format on */

/* The fields of a record that clients are shown; `out` borrows its texts. Sets ranks_running to
 * 0. */
void rdzv_summary(const struct rdzv_record *record, struct part_job *out);
/* succeeded, failed, cancelled */
bool rdzv_state_is_final(enum job_state state);
/* The slot of a local rank. */
uint32_t rdzv_part_slot(const struct rdzv_part *part, uint32_t local_rank);

#endif
