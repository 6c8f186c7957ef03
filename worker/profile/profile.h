/* What a step costs: --profile and --print-graph.
 *
 * A profile has the time of each layer and of the other parts of a step, compared with what the
 * layer must compute and move (cost.h) and with the limits of the device, its roof (roofline.h).
 * print_graph.h, also public, prints a graph. */
#ifndef WORKER_PROFILE_PROFILE_H
#define WORKER_PROFILE_PROFILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/status.h"
#include "worker/net/net.h"
#include "worker/net/optim.h"
#include "worker/net/profile.h"
#include "worker/profile/roofline.h"

#define PROFILE_STAGES_MAX 16

/* X(name, text): groups of parts of a step. */
#define PROFILE_GROUP_TABLE(X)                                                                     \
    X(CONVOLUTION, "convolution")                                                                  \
    X(BATCH_NORM, "batch norm")                                                                    \
    X(LINEAR, "linear")                                                                            \
    X(OTHER, "other layers")                                                                       \
    X(IMAGES, "images")                                                                            \
    X(REDUCE, "reduce")                                                                            \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(DATA_WAIT, "data wait")

enum profile_group {
#define PROFILE_GROUP_ENUM(name, text) PROFILE_##name,
    PROFILE_GROUP_TABLE(PROFILE_GROUP_ENUM)
#undef PROFILE_GROUP_ENUM
        PROFILE_GROUPS
};

/* A layer or another part of a step. Times are per step. */
struct profile_line {
    const char *name, *op, *type; /* op and type are "" for a part that is not a layer */
    enum profile_group group;
    enum graph_dtype dtype;
    bool is_beside;                 /* overlaps with other work: not in the sums */
    double forward_ms, backward_ms; /* all in forward_ms for a part that is not a layer */
    double flop, bytes;             /* forward and backward; 0: unknown */
};

/* A stage of the start, before the first step. */
struct profile_stage {
    const char *name; /* a string constant */
    double ms;
};

/* What the training loop measured. Texts are borrowed until profile_free(). */
struct profile_facts {
    const char *device, *model;
    char type[8];                        /* "O2" */
    const char *half;                    /* "fp16" */
    uint32_t rank, world, steps, images; /* images: of one step on this rank */
    double step_ms;                      /* of steps without timing; means over `steps` steps */
    double profiled_step_ms;             /* of steps that were timed layer by layer */
    double wait_ms;                      /* of the timed steps: waiting for a batch */
    double comm_ms;                      /* ... in collectives of the host */
    double exposed_ms;                   /* ... of comm_ms: not overlapped with backward */
    bool tf32;
    const struct roof *roof; /* NULL: unknown */
    const struct optim *optim;
    double begun_s; /* CLOCK_MONOTONIC at the start of the program */
    struct profile_stage stages[PROFILE_STAGES_MAX];
    uint32_t stage_count;
};

struct profile {
    struct profile_facts facts;
    struct profile_line *lines;
    uint32_t line_count;
    double group_ms[PROFILE_GROUPS];
    double sum_ms;  /* of all groups */
    double rest_ms; /* step_ms - sum_ms, at least 0: how long a GPU is idle */
    size_t net_bytes, peak_rss_bytes;
};

/* A profile from the times that the net has measured in `steps` steps. Errors: STATUS_MEMORY. */
enum status profile_new(struct profile **profile, const struct net *net,
                        const struct profile_facts *facts, struct err *err);
void profile_free(struct profile **profile);
const char *profile_group_name(enum profile_group group);
/* The least possible time of a line divided by its time, 0 to 1; negative: unknown. */
double profile_roof_share(const struct profile *profile, const struct profile_line *line);

/* The profile as a table; as one JSON object in a file. Errors: STATUS_IO, STATUS_MEMORY. */
void profile_print(FILE *out, const struct profile *profile);
enum status profile_write(const char *path, const struct profile *profile, struct err *err);

#endif
