/* Launch options: options of a job that only its nodes read. They travel as the pairs `launch` of
 * submit and start, and the server stores them without reading them. ddpctl checks them before it
 * submits a job, and a node checks them again before it starts one. */
#ifndef COMMON_LAUNCH_H
#define COMMON_LAUNCH_H

#include "common/msg.h"
#include "common/status.h"

/* X(name, allowed values, for messages). The checks are in launch.c. */
#define LAUNCH_TABLE(X)                                                                            \
    X(ENV_STYLE, "env-style", "torch, slurm, horovod or mpi, several with commas")                 \
    X(LOCAL_RANK_ARG, "local-rank-arg", "the name of an argument, of letters, digits, - and _")    \
    X(ROLE, "role", "1 to 64 characters, no control characters")                                   \
    X(RUN_ID, "run-id", "1 to 64 characters, no control characters")                               \
    X(STORE, "store", "on or off")                                                                 \
    X(VIRTUAL_LOCAL_RANK, "virtual-local-rank", "on")                                              \
    X(STDIN, "stdin", "a rank of the job, such as 0")                                              \
    X(TTY, "tty", "ROWSxCOLUMNS, such as 24x80")                                                   \
    X(STREAMS, "streams", "one: stdout and stderr share a pipe, and are stdout")                   \
    X(UMASK, "umask", "an octal number, such as 027")                                              \
    X(LIMITS, "limits", "NAME=NUMBER, several with commas, such as nofile=4096,core=unlimited")

enum launch_option {
#define LAUNCH_ENUM(suffix, name, values) LAUNCH_##suffix,
    LAUNCH_TABLE(LAUNCH_ENUM)
#undef LAUNCH_ENUM
        LAUNCH_COUNT
};

const char *launch_name(enum launch_option option);
bool launch_find(const char *name, enum launch_option *option);
/* The option's value; NULL: it was not given. Borrowed. */
const char *launch_value(const struct msg_pair_list *launch, enum launch_option option);
/* Decodes the value of LOCAL_RANK_ARG, "2:local_rank": the word of argv before which --local_rank=N
 * is inserted, at most `argv_count`. NULL: not given. */
const char *launch_local_rank_arg(const struct msg_pair_list *launch, uint32_t argv_count,
                                  uint32_t *before);
/* Whether the comma-separated list `words` has `word`. */
bool launch_has_word(const char *words, const char *word);
/* The rank in the value of LAUNCH_STDIN. False: not a rank. */
bool launch_rank(const char *value, uint32_t *rank);
/* The size in the value of LAUNCH_TTY. False: not a size. */
bool launch_size(const char *value, uint32_t *rows, uint32_t *columns);
/* The mask in the value of LAUNCH_UMASK. False: not a mask. */
bool launch_mask(const char *value, uint32_t *mask);
/* STATUS_BAD_INPUT: not a value of that option. */
enum status launch_check(enum launch_option option, const char *value, struct err *err);
/* Checks all options; STATUS_BAD_INPUT also for a name that this version does not know. */
enum status launch_check_all(const struct msg_pair_list *launch, struct err *err);

#endif
