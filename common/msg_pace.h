/* The messages about the pace of ranks: their progress, and what a node is asked when they seem to
 * hang. A part of msg.h, which explains the declarations. */
#ifndef COMMON_MSG_PACE_H
#define COMMON_MSG_PACE_H

#include "common/limits.h"
#include "common/msg_enum.h"

/* clang-format off */

/* where one live rank stands, as its node sees it */
#define PART_RANK_LOOK(F, E, L)                                                                    \
    F(U32, rank, 0, RANKS_PER_JOB_MAX - 1)                                                         \
    F(LINE, state, 0, 1)                         /* of its process, as ps has it: "S", "T"; or "" */ \
    E(place, look_place, LOOK_PLACE_TABLE)                                                         \
    F(LINE, where, 0, LOOK_WHERE_BYTES_MAX - 1)  /* "load_data (train.py:5)"; or "" */             \
    F(TEXT, stack, 0, LOOK_STACK_BYTES_MAX - 1)  /* lines for people, or why there are none */

/* server -> node: are this generation's ranks on this node idle, and where are they? */
#define MSG_LOOK(F, E, L)                                                                          \
    F(U64, request_id, 1, JOB_ID_MAX)                                                              \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(BOOL, with_stacks, 0, 0)

/* node -> server: the answer, within 10 s, without what could not be examined */
#define MSG_LOOKED(F, E, L)                                                                        \
    F(U64, request_id, 1, JOB_ID_MAX)                                                              \
    F(BOOL, is_deaf, 0, 0)                       /* their shim is stopped: what they tell waits */ \
    F(BOOL, is_busy, 0, 0)                       /* a rank used CPU or GPU within the last second */ \
    L(ranks, rank_look, SLOTS_PER_NODE_MAX)

/* worker -> shim -> node -> server; once a second, may be lost */
#define MSG_PROGRESS(F, E, L)                                                                      \
    F(U64, job_id, 1, JOB_ID_MAX)                                                                  \
    F(U32, generation, 1, GENERATION_MAX)                                                          \
    F(U32, rank, 0, RANKS_PER_JOB_MAX - 1)                                                         \
    F(U32, epoch, 0, UINT32_MAX)                                                                   \
    F(U32, epochs, 0, UINT32_MAX)                                                                  \
    F(U64, step, 0, JOB_ID_MAX)                                                                    \
    F(U64, steps, 0, JOB_ID_MAX)                                                                   \
    F(F64, loss, -1e300, 1e300)                                                                    \
    F(F64, samples_per_s, 0, 1e300)                                                                \
    F(U64, checkpoint_step, 0, JOB_ID_MAX)       /* newest committed; 0: none */                   \
    E(phase, progress_phase, PROGRESS_PHASE_TABLE)                                                 \
    F(LINE, doing, 0, DOING_BYTES_MAX - 1)       /* "all_reduce number 88: layer4.conv2"; or "" */ \
    F(U64, collectives, 0, JOB_ID_MAX)           /* that it has begun; 0: it does not count them */ \
    F(BOOL, in_collective, 0, 0)                 /* it waits in the newest of them */              \
    F(U64, again_us, 0, DURATION_US_MAX) /* it tells again within that time, also of nothing new; 0: or not */ \
    F(U64, timed_steps, 0, JOB_ID_MAX)   /* of this generation: the times below are totals of them */ \
    F(U64, step_us, 0, TIME_US_MAX)                                                                \
    F(U64, data_us, 0, TIME_US_MAX)      /* it waited for data */                                  \
    F(U64, compute_us, 0, TIME_US_MAX)   /* forward and backward */                                \
    F(U64, update_us, 0, TIME_US_MAX)    /* optimizer */                                           \
    F(U64, wait_us, 0, TIME_US_MAX)      /* it waited for other ranks, in collectives */

/* clang-format on */

#endif
