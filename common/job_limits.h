/* The limits of the submitter's process (ulimit) that its ranks get too. They travel as a launch option,
 * "nofile=4096,core=unlimited": soft limits only, and only those that differ from what a job has
 * anyway. Pure. */
#ifndef COMMON_JOB_LIMITS_H
#define COMMON_JOB_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(RLIMIT_..., name, "the soft limit that nobody has set"). Not among them: cpu and nproc, which
 * machines for logins set against what a job does, and limits that Linux does not look at. A
 * memlock that is lower than the node's is not taken over: nodes with InfiniBand need theirs. */
#define JOB_LIMITS_TABLE(X)                                                                        \
    X(CORE, "core", 0)                                                                             \
    X(NOFILE, "nofile", 1024)                                                                      \
    X(STACK, "stack", 8u << 20)                                                                    \
    X(MEMLOCK, "memlock", 8u << 20)                                                                \
    X(AS, "as", JOB_LIMIT_NONE)                                                                    \
    X(DATA, "data", JOB_LIMIT_NONE)                                                                \
    X(FSIZE, "fsize", JOB_LIMIT_NONE)

#define JOB_LIMIT_NONE UINT64_MAX /* "unlimited" */
#define JOB_LIMITS_TEXT_BYTES 256u

enum job_limit {
#define JOB_LIMIT_ENUM(suffix, name, usual) JOB_LIMIT_##suffix,
    JOB_LIMITS_TABLE(JOB_LIMIT_ENUM)
#undef JOB_LIMIT_ENUM
        JOB_LIMIT_COUNT
};

struct job_limits {
    bool is_set[JOB_LIMIT_COUNT];
    uint64_t soft[JOB_LIMIT_COUNT];
};

/* RLIMIT_... of it. */
int job_limit_resource(enum job_limit limit);
/* Whether a submitter with this soft limit has set it: a job gets it too. */
bool job_limit_is_chosen(enum job_limit limit, uint64_t soft);
/* Writes those that are set. */
void job_limits_format(const struct job_limits *limits, char text[JOB_LIMITS_TEXT_BYTES]);
/* False: `text` is no list of limits. */
bool job_limits_parse(const char *text, struct job_limits *limits);

/* What a rank gets where the hard limits are `hard` and the soft ones `soft`: no limit is above the hard one.
 * `cut` gets the limits that are lower than wanted, "nofile 1048576 (here 4096)"; empty: none. */
void job_limits_fit(struct job_limits *limits, const uint64_t hard[JOB_LIMIT_COUNT],
                    const uint64_t soft[JOB_LIMIT_COUNT], char *cut, size_t cut_bytes);

#endif
