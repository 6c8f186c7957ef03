/* The enumerations in messages, declared once: constants and names on the wire. The functions are
 * in msg_names.c, which a core can link without a heap. */
#ifndef COMMON_MSG_ENUM_H
#define COMMON_MSG_ENUM_H

#include <stdbool.h>

/* X(constant suffix, name on the wire) */
#define JOB_STATE_TABLE(X)                                                                         \
    X(QUEUED, "queued")                                                                            \
    X(STARTING, "starting")                                                                        \
    X(RUNNING, "running")                                                                          \
    X(RESTARTING, "restarting")                                                                    \
    X(SUCCEEDED, "succeeded")                                                                      \
    X(FAILED, "failed")                                                                            \
    X(CANCELLED, "cancelled")
#define SHIM_PHASE_TABLE(X)                                                                        \
    X(PREPARING, "preparing") /* spawned, has sent nothing yet */                                  \
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
    X(QUARANTINED, "quarantined") /* a process is on it; open again when it is gone */             \
    X(UNKNOWN, "unknown")         /* NVML does not answer; open again when it does */              \
    X(DRAINED, "drained")         /* a fault, or an operator: until it is resumed */
/* What a failure is attributed to. */
#define FAILURE_CLASS_TABLE(X)                                                                     \
    X(UNSAID, "unsaid")                                                                            \
    X(PROGRAM, "program") /* a rank exited, was killed, or its command cannot be run */            \
    X(NODE, "node")       /* the machine could not do its part */                                  \
    X(NETWORK, "network") /* silent, or cut off from the server */                                 \
    X(HANG, "hang")       /* no progress: counts as the program's */

/* What log_read reads of a rank. */
#define LOG_KIND_TABLE(X)                                                                          \
    X(OUTPUT, "output")    /* what it printed */                                                   \
    X(METRICS, "metrics")  /* what it wrote to DDP_METRICS */                                      \
    X(ERROR_FILE, "error") /* what it wrote to TORCHELASTIC_ERROR_FILE */                          \
    X(STACK, "stack")      /* where it stands now: a JSON object, made for the request */          \
    X(STORE, "store")      /* the c10d store of its generation, likewise; of rank 0 */

/* What node_read asks a node. */
#define NODE_QUESTION_TABLE(X)                                                                     \
    X(CLOCK, "clock")     /* nothing but the time of the answer */                                 \
    X(GAUGES, "gauges")   /* how busy it is now */                                                 \
    X(DOCTOR, "doctor")   /* everything that can be wrong with it */                               \
    X(LISTEN, "listen")   /* to listen on ports for others to try */                               \
    X(CONNECT, "connect") /* to try the ports of others */

/* What a worker is doing. Only in STEPS is it expected to make steps. */
#define PROGRESS_PHASE_TABLE(X)                                                                    \
    X(STEPS, "steps")         /* training steps, or it does not say */                             \
    X(PREPARING, "preparing") /* before a step: it loads, compiles, measures */                    \
    X(VALIDATING, "validating")                                                                    \
    X(SAVING, "saving") /* writes a checkpoint, and no steps meanwhile */                          \
    X(ENDING, "ending") /* its last step is done */

/* What a rank is waiting for, as far as its stack shows. */
#define LOOK_PLACE_TABLE(X)                                                                        \
    X(UNKNOWN, "unknown")                                                                          \
    X(COLLECTIVE, "collective") /* it waits for other ranks */                                     \
    X(ELSEWHERE, "elsewhere")

/* Warm processes of a job on its spare node. */
#define WARM_STATE_TABLE(X)                                                                        \
    X(STARTING, "starting")                                                                        \
    X(READY, "ready")   /* they wait for their place */                                            \
    X(FAILED, "failed") /* there are none, and none will be started */                             \
    X(ENDING, "ending") /* they are not wanted any more, or do not fit */

#define ROLE_TABLE(X)                                                                              \
    X(NODE, "node")   /* a launcherd */                                                            \
    X(USER, "user")   /* a person: sees and changes what is theirs */                              \
    X(ADMIN, "admin") /* a person: sees and changes everything */

#define MSG_JOB_STATE(suffix, name) JOB_##suffix,
#define MSG_SHIM_PHASE(suffix, name) SHIM_##suffix,
#define MSG_RANK_STATE(suffix, name) RANK_##suffix,
#define MSG_NODE_STATE(suffix, name) NODE_##suffix,
#define MSG_SLOT_STATE(suffix, name) SLOT_##suffix,
#define MSG_FAILURE_CLASS(suffix, name) FAILURE_##suffix,
#define MSG_LOG_KIND(suffix, name) LOG_##suffix,
#define MSG_NODE_QUESTION(suffix, name) NODE_ASKED_##suffix,
#define MSG_PROGRESS_PHASE(suffix, name) PROGRESS_##suffix,
#define MSG_LOOK_PLACE(suffix, name) LOOK_##suffix,
#define MSG_WARM_STATE(suffix, name) WARM_##suffix,
#define MSG_ROLE(suffix, name) ROLE_##suffix,
enum job_state { JOB_STATE_TABLE(MSG_JOB_STATE) };
enum shim_phase { SHIM_PHASE_TABLE(MSG_SHIM_PHASE) };
enum rank_state { RANK_STATE_TABLE(MSG_RANK_STATE) };
enum node_state { NODE_STATE_TABLE(MSG_NODE_STATE) };
enum slot_state { SLOT_STATE_TABLE(MSG_SLOT_STATE) };
enum failure_class { FAILURE_CLASS_TABLE(MSG_FAILURE_CLASS) };
enum log_kind { LOG_KIND_TABLE(MSG_LOG_KIND) };
enum node_question { NODE_QUESTION_TABLE(MSG_NODE_QUESTION) };
enum progress_phase { PROGRESS_PHASE_TABLE(MSG_PROGRESS_PHASE) };
enum look_place { LOOK_PLACE_TABLE(MSG_LOOK_PLACE) };
enum warm_state { WARM_STATE_TABLE(MSG_WARM_STATE) };
enum role { ROLE_TABLE(MSG_ROLE) };
/* Every enumeration: X(tag, TABLE). */
#define MSG_ENUM_TABLE(X)                                                                          \
    X(job_state, JOB_STATE_TABLE)                                                                  \
    X(shim_phase, SHIM_PHASE_TABLE)                                                                \
    X(rank_state, RANK_STATE_TABLE)                                                                \
    X(node_state, NODE_STATE_TABLE)                                                                \
    X(slot_state, SLOT_STATE_TABLE)                                                                \
    X(failure_class, FAILURE_CLASS_TABLE)                                                          \
    X(log_kind, LOG_KIND_TABLE)                                                                    \
    X(node_question, NODE_QUESTION_TABLE)                                                          \
    X(progress_phase, PROGRESS_PHASE_TABLE)                                                        \
    X(look_place, LOOK_PLACE_TABLE)                                                                \
    X(warm_state, WARM_STATE_TABLE)                                                                \
    X(role, ROLE_TABLE)

/* The name of a value; "unknown" for what is no value of the enumeration. */
const char *job_state_name(enum job_state state);
const char *shim_phase_name(enum shim_phase phase);
const char *rank_state_name(enum rank_state state);
const char *node_state_name(enum node_state state);
const char *slot_state_name(enum slot_state state);
const char *failure_class_name(enum failure_class class);
const char *log_kind_name(enum log_kind kind);
const char *node_question_name(enum node_question question);
const char *progress_phase_name(enum progress_phase phase);
const char *look_place_name(enum look_place place);
const char *warm_state_name(enum warm_state state);
const char *role_name(enum role role);

/* job_state_parse and so on: the value of a name; false: it is none. */
#define MSG_PARSE(tag, TABLE) bool tag##_parse(const char *text, enum tag *value);
MSG_ENUM_TABLE(MSG_PARSE)
#undef MSG_PARSE

#endif
