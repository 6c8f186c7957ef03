/* Why a job failed, waits or stands still: what the server and the nodes say of it, as text or JSON. Pure:
 * facts to buf; verb_why.c gathers the facts. Text of programs is escaped, and answers of nodes are
 * strictly parsed. */
#ifndef DDPCTL_WHY_H
#define DDPCTL_WHY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/msg.h"
#include "ddpctl/output.h"

#define WHY_STILL_US 30000000u /* without progress for so long, a rank stands still */
#define WHY_DIAL_US 3000000u   /* by then a script is started */
#define WHY_STACKS_MAX 16u
#define WHY_KEYS_MAX 8u
#define WHY_UNKNOWN_MAX 8u
#define WHY_UNKNOWN_BYTES (REASON_BYTES_MAX + 64u)

/* One connection to a job's c10d store. */
struct why_client {
    const char *node, *address;
    int32_t rank; /* -1: not known */
    double connected_s, waits_s;
    const char *waits; /* "keys", "barrier", or "" */
    const char *missing[WHY_KEYS_MAX];
    uint32_t missing_listed, missing_count;
};

struct why_store {
    const char *address; /* "": nobody was asked, or it could not be read */
    double keys;
    struct why_client *clients; /* [client_count] */
    uint32_t client_count;
};

/* Where a rank stands. */
struct why_stack {
    uint32_t rank, pid, dial_pid; /* dial_pid, dial_to: see why_dial; 0: it does not */
    const char *state, *wchan, *kernel, *python,
        *dial_to; /* kernel: its innermost frames, "a < b < c"; empty: not known */
    const char *kernel_problem, *python_problem;
};

/* A rank that waits for a store which nobody serves. */
struct why_dial {
    uint32_t rank, pid; /* pid: its own, or that of a process below it */
    const char *to;     /* "10.0.0.2:29500", from where no answer comes; empty: refused */
};

struct why {
    const struct msg_why_info *info;
    const struct msg_job_info *job;  /* with the ranks; NULL: not asked */
    const struct msg_nodes *nodes;   /* of a job that waits; NULL: not asked */
    const struct part_event *cancel; /* says who cancelled the job; NULL: not known */
    const struct part_event *unkept; /* says that its end is not stored on a node; NULL: none */
    struct why_store store;
    struct why_stack stacks[WHY_STACKS_MAX];
    uint32_t stack_count;
    struct why_dial dials[WHY_STACKS_MAX];
    uint32_t dial_count;
    uint32_t generation; /* the one to show in full; 0: the one that decided */
    char unknown[WHY_UNKNOWN_MAX][WHY_UNKNOWN_BYTES]; /* what could not be asked, and why */
    uint32_t unknown_count;
};

/* Parse the answers of nodes. The texts are in `arena`. STATUS_BAD_INPUT, STATUS_MEMORY. `job`: has
 * the ranks, from which the rank of a process is known. */
enum status why_store_parse(const char *json, size_t byte_count, const struct msg_job_info *job,
                            struct arena *arena, struct why_store *store, struct err *err);
enum status why_stack_parse(const char *json, size_t byte_count, uint32_t rank, struct arena *arena,
                            struct why_stack *stack, struct err *err);
/* What a key of PyTorch's store stands for; false: not known. `rank`: who sets it; -1: not known. */
bool why_key_text(const char *key, int32_t *rank, struct buf *out);

/* The failure that is shown in full; NULL: there is none. */
const struct part_failure *why_shown(const struct why *why);
/* The job has run for WHY_STILL_US, and no rank has reported any progress, or one rank has
 * reported none for so long. */
bool why_stands_still(const struct msg_why_info *info);
/* The job runs, and has told of no progress, and not all its ranks are in its store: some may wait for
 * another one. */
bool why_may_dial(const struct why *why);
/* Marks the ranks that the others wait for, by the store alone, in `marks` [world]. Returns their
 * number. */
uint32_t why_blockers(const struct why *why, bool *marks, uint32_t world);

void why_text(const struct why *why, const struct output_style *style, struct buf *out);
void why_json(const struct why *why, struct buf *out);
/* How a job failed or why it restarts, in one line for its status; empty for other jobs. */
void why_line(const struct msg_why_info *info, struct buf *out);
/* One line of a failure without a line feed: "rank 3 on gpu03 exited with code 1 after 12s: ..." */
void why_failure_line(const struct part_failure *failure, struct buf *out);

/* Shared between why_text.c and why_live.c. */
void why_live_text(const struct why *why, struct buf *out);
void why_waits_text(const struct why *why, struct buf *out);

#endif
