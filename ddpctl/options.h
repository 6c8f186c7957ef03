/* Every option of ddpctl: the rows and the struct that they fill. */
#ifndef DDPCTL_OPTIONS_H
#define DDPCTL_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/options.h"

/* Presets of numbers and durations: the option was not given. */
#define OPTION_NO_NUMBER UINT32_MAX
#define OPTION_NO_DURATION UINT64_MAX

enum verb {
    VERB_RUN = 1u << 0,
    VERB_SUBMIT = 1u << 1,
    VERB_PS = 1u << 2,
    VERB_STATUS = 1u << 3,
    VERB_LOGS = 1u << 4,
    VERB_CANCEL = 1u << 5,
    VERB_WAIT = 1u << 6,
    VERB_NODES = 1u << 7,
    VERB_EVENTS = 1u << 8,
    VERB_VERSION = 1u << 9,
    VERB_HELP = 1u << 10,
    VERB_NODE = 1u << 11,
    VERB_USER = 1u << 13,
    VERB_LOGIN = 1u << 14,
    VERB_LOGOUT = 1u << 15,
    VERB_COMPLETION = 1u << 16,
    VERB_METRICS = 1u << 17,
    VERB_REPORT = 1u << 18,
    VERB_WHY = 1u << 19,
    VERB_HTTP = 1u << 20,
    VERB_TOP = 1u << 21,
    VERB_SERVER = 1u << 12,
    VERB_DOCTOR = 1u << 23,
    VERB_BACKUP = 1u << 27,
    VERB_RESTORE = 1u << 28,
    VERB_UPGRADE = 1u << 25,
};

struct options {
    /* all verbs; server may be NULL, see server.h */
    const char *server, *color;
    bool json, quiet;
    uint64_t patience_us;
    /* the job */
    const char *nodes, *nproc_per_node, *name, *cwd, *stage;
    struct option_texts env, after;
    bool env_clear, module, no_python, no_store, run_path, virtual_local_rank;
    bool use_env; /* from torch.distributed.launch; no effect: LOCAL_RANK is always set */
    const char *role, *rdzv_id, *rdzv_endpoint /* joint.h */, *env_style, *local_rank_arg;
    const char *redirects, *tee, *log_line_prefix_template, *duplicate_out, *duplicate_error,
        *local_ranks_filter, *node_rank, *signals_to_handle; /* torchrun.h */
    uint32_t max_restarts;
    uint64_t grace_us, time_us;
    const char *priority;
    bool wait_for_room, wait_for_nodes, replace_stragglers, requeue_at_limit;
    uint32_t spares;
    const char *hang_timeout, *warn, *array;
    bool wait, follow, dry_run, standalone, slurm;
    const char *state_dir, *log_dir, *bindir;
    /* what is shown */
    bool all, expand, watch, raw, previous, no_progress, timestamps, stacks;
    const char *prefix, *stream;
    const char *stdin_rank;
    bool tty;
    const char *field, *format, *output;
    const char *rank, *job;
    uint32_t generation, tail;
    /* wait, cancel */
    uint64_t timeout_us;
    const char *until, *signal;
    bool now;
    /* node */
    const char *slot, *reason;
    /* http, top */
    const char *listen, *key_file, *cert, *cert_key;
    struct option_texts hosts;
    uint64_t interval_us;
    bool once;
    /* backup, restore */
    const char *store, *store_ca, *store_cert, *store_key, *store_user, *store_password_file;
    bool move, keys_checked;
    /* doctor */
    struct option_texts node;
    bool net;
    bool plan;
    /* keys */
    bool admin;
    uint64_t overlap_us;
    /* names of accepted options that have no effect here */
    const char *ignored[32];
    uint32_t ignored_count;
};

/* Presets everything to "not given". */
void options_init(struct options *options);
/* The options of all verbs. Each also has an environment variable: DDP_ and its name. But launcherd
 * sets some variables in ranks (launcherd/shim/worker_env.c): an option of such a name has none. */
extern const struct option_row options_rows[];
extern const size_t options_row_count;

#endif
