/* --profile: where the time of a step goes, layer by layer and in groups, against what the layers
 * have to compute and to move (cost.h) and the device's roof (roof.h). */
#ifndef WORKER_PROFILE_H
#define WORKER_PROFILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/status.h"
#include "worker/net.h"
#include "worker/optim.h"
#include "worker/roof.h"

#define PROFILE_STAGES_MAX 16

/* X(name, words): what the parts of a step belong to. */
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
#define PROFILE_GROUP_ENUM(name, words) PROFILE_##name,
    PROFILE_GROUP_TABLE(PROFILE_GROUP_ENUM)
#undef PROFILE_GROUP_ENUM
        PROFILE_GROUPS
};

/* A layer, or a part of the step that is none. Per step. */
struct profile_line {
    const char *name, *op, *type; /* op and type are "" where it is no layer */
    enum profile_group group;
    enum graph_dtype dtype;
    bool is_beside;                 /* done while other work goes on: in no sum */
    double forward_ms, backward_ms; /* no layer: all of it is in forward_ms */
    double flop, bytes;             /* of both; 0: not known */
};

/* A part of the time before the first step. */
struct profile_stage {
    const char *name; /* constant */
    double ms;
};

/* What the loop knows. Texts are borrowed for as long as the profile lives. */
struct profile_facts {
    const char *device, *model;
    char type[8];                        /* "O2" */
    const char *low;                     /* "fp16" */
    uint32_t rank, world, steps, images; /* images: of one step on this rank */
    double step_ms;                      /* of steps that nobody times; means over `steps` steps */
    double profiled_step_ms;             /* of those that were timed layer by layer */
    double wait_ms;                      /* of the latter: for batches, */
    double comm_ms, exposed_ms; /* inside the host's collectives, and of that: waited for */
    bool tf32;
    const struct roof *roof; /* NULL: unknown */
    const struct optim *optim;
    double begun_s; /* CLOCK_MONOTONIC when the program began to get ready */
    struct profile_stage stages[PROFILE_STAGES_MAX];
    uint32_t stage_count;
};

struct profile {
    struct profile_facts facts;
    struct profile_line *lines;
    uint32_t line_count;
    double group_ms[PROFILE_GROUPS];
    double sum_ms;  /* of all groups */
    double rest_ms; /* step_ms without that, at least 0: on a GPU it is idle so long */
    size_t net_bytes, peak_rss_bytes;
};

/* From what the net has counted in `steps` timed steps. Errors: STATUS_MEMORY. */
enum status profile_new(struct profile **profile, const struct net *net,
                        const struct profile_facts *facts, struct err *err);
void profile_free(struct profile **profile);
const char *profile_group_name(enum profile_group group);
/* Share of the roof that a line reaches, 0 to 1; negative where it is unknown. */
double profile_roof_share(const struct profile *profile, const struct profile_line *line);

/* profile_text.c: as a table, and as one JSON object in a new file. Errors: STATUS_IO,
 * STATUS_MEMORY. */
void profile_print(FILE *out, const struct profile *profile);
enum status profile_write(const char *path, const struct profile *profile, struct err *err);

#endif
