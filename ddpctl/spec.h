/* The specification of a job, from a JSON file, options and the environment; and the submit request
 * that is made from it. */
#ifndef DDPCTL_SPEC_H
#define DDPCTL_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/launch.h"
#include "common/msg.h"
#include "common/status.h"

#define SPEC_RESTARTS_DEFAULT 3u
#define SPEC_FILE_BYTES_MAX (1024u * 1024u)

/* Texts are in the arena that was passed to spec_init. */
struct spec {
    const char *name;                          /* NULL: made from argv */
    const char *cwd;                           /* NULL: where ddpctl runs */
    uint32_t nodes, nodes_min, nproc_per_node; /* nodes_min 0: same as `nodes` */
    bool nproc_given;
    uint32_t spares;
    bool replace_stragglers, requeue_at_limit;
    uint64_t hang_timeout_us; /* 0: by the steps; TIME_US_MAX: never */
    uint64_t warn_us;         /* 0: none */
    uint32_t warn_signal;
    const char *after; /* common/after_spec.h; NULL: none */
    const char *array; /* common/array_spec.h; NULL: one job */
    uint32_t max_restarts;
    bool restarts_given; /* max_restarts is not the default */
    uint64_t grace_us, time_limit_us;
    int32_t priority;
    bool wait_for_nodes;
    struct msg_text_list argv;
    struct msg_pair *env; /* [env_count], room for env_room; names are unique */
    uint32_t env_count, env_room;
    uint32_t *env_index;                  /* [2 * env_room]: by the hash of a name */
    struct msg_pair launch[LAUNCH_COUNT]; /* [launch_count]; options of common/launch.h */
    uint32_t launch_count;
};

/* Sets max_restarts to what the user has asked for. */
static inline void spec_set_restarts(struct spec *spec, uint32_t count)
{
    spec->max_restarts = count;
    spec->restarts_given = true;
}

/* Sets the defaults. */
void spec_init(struct spec *spec);
/* Reads a JSON job specification over the present values. Keys: name nodes nproc_per_node argv env
 * launch cwd max_restarts grace time requeue_at_limit priority wait_for_nodes nodes_min spares
 * replace_stragglers hang_timeout warn after array. They correspond to the options of those names
 * (times as "5m" or a number of seconds). An unknown key is an error; the message names its line
 * and the nearest known key. `file`: for the message. STATUS_BAD_INPUT, STATUS_TOO_BIG,
 * STATUS_MEMORY. */
enum status spec_parse(struct spec *spec, struct arena *arena, const char *file, const char *text,
                       size_t byte_count, struct err *err);
/* Sets or replaces a variable; `name`: as execve takes it, such as BASH_FUNC_x%% too. Variables of the
 * platform (DDP_*) are refused. */
enum status spec_set_env(struct spec *spec, struct arena *arena, const char *name,
                         const char *value, struct err *err);
/* NULL: it is not set. */
const char *spec_env_value(const struct spec *spec, const char *name);
/* Sets or replaces a launch option; `value` is borrowed. */
enum status spec_set_launch(struct spec *spec, enum launch_option option, const char *value,
                            struct err *err);
/* Decides whether the ranks get a c10d store (docs/c10d-store.md): as the specification says;
 * otherwise every program except ddp-worker gets one, unless the job has torchrun's
 * TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, or one rank. That one need not meet anybody, and may start processes
 * that meet in a store of their own (mp.spawn): where an agent says that it serves the store, PyTorch
 * serves none, whatever the address. `none`: never. */
enum status spec_choose_store(struct spec *spec, bool none, struct err *err);
/* Sets "NAME=VALUE", or "NAME" with its value in our environment. */
enum status spec_set_env_text(struct spec *spec, struct arena *arena, const char *text,
                              struct err *err);
/* Variables that are not sent, by name, for one line to the user. */
struct spec_left_out {
    uint32_t ours, invalid;               /* DDP_* and secrets; those that no message can carry */
    struct buf ours_names, invalid_names; /* "MASTER_ADDR RANK", escaped, a few; to be freed */
};

/* Adds the variables of `environ`, except those that are set already and those of ddpctl's own
 * options. */
enum status spec_add_environ(struct spec *spec, struct arena *arena, char *const *environ,
                             struct spec_left_out *left_out, struct err *err);
/* STATUS_TOO_BIG: the request is larger than a server takes; the message names the largest variables. */
enum status spec_check_size(const struct spec *spec, const struct msg_submit *submit,
                            struct err *err);
/* Parses "N" or "MIN:MAX"; `nodes` gets N or MAX. */
enum status spec_nodes_parse(const char *text, uint32_t *nodes, uint32_t *nodes_min,
                             struct err *err);
/* Parses "5m" or "off". */
enum status spec_hang_parse(struct spec *spec, const char *text, struct err *err);
/* Parses "60s:USR1". */
enum status spec_warn_parse(struct spec *spec, const char *text, struct err *err);
/* Adds "12,name:any" (common/after_spec.h) to those that the spec has; the list is in `arena`. */
enum status spec_after_parse(struct spec *spec, struct arena *arena, const char *text,
                             struct err *err);
/* Parses "-5" or "10": PRIORITY_MIN..PRIORITY_MAX. */
enum status spec_priority_parse(const char *text, int32_t *priority, struct err *err);
/* Makes a name from the command: "python3 -u x/train.py" gives "train", "/usr/bin/env" gives "env".
 * Never empty. */
void spec_default_name(const struct msg_text_list *argv, char name[JOB_NAME_BYTES_MAX]);
/* Whether the server accepts the name. */
bool spec_name_is_valid(const char *name);
/* Makes the request, which borrows from `spec`. A value over a limit is an error. */
enum status spec_request(const struct spec *spec, const char *request_id, const char *name,
                         const char *cwd, struct msg_submit *submit, struct err *err);

#endif
