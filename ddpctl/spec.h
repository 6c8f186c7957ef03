/* The specification of a job, from a JSON file, options and the environment; and the submit request
 * made of it. */
#ifndef DDPCTL_SPEC_H
#define DDPCTL_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/msg.h"
#include "common/status.h"

#define SPEC_RESTARTS_DEFAULT 3u
#define SPEC_FILE_BYTES_MAX (1024u * 1024u)

/* Texts are in the arena that it was made with. */
struct spec {
    const char *name; /* NULL: from argv */
    const char *cwd;  /* NULL: where ddpctl runs */
    uint32_t nodes, nproc_per_node;
    bool nproc_given;
    uint32_t max_restarts;
    uint64_t grace_us, time_limit_us;
    int32_t priority;
    bool wait_for_nodes;
    struct msg_text_list argv;
    struct msg_pair *env; /* [env_count], room for ENV_MAX; names are unique */
    uint32_t env_count;
};

/* Sets the defaults. STATUS_MEMORY. */
enum status spec_init(struct spec *spec, struct arena *arena, struct err *err);
/* Reads a JSON job specification over the values that are set. Keys: name nodes nproc_per_node argv
 * env cwd max_restarts grace time priority wait_for_nodes (times as "5m" or a number of seconds). Strict: an unknown key is
 * an error, with its line and the nearest known key. `file` is for the message. STATUS_BAD_INPUT,
 * STATUS_TOO_BIG, STATUS_MEMORY. */
enum status spec_parse(struct spec *spec, struct arena *arena, const char *file, const char *text,
                       size_t byte_count, struct err *err);
/* Sets or replaces a variable; `name`: [A-Za-z_][A-Za-z0-9_]*. Variables of the platform (DDP_*)
 * are refused. */
enum status spec_set_env(struct spec *spec, struct arena *arena, const char *name,
                         const char *value, struct err *err);
/* "NAME=VALUE", or "NAME" with the value of `environ`. */
enum status spec_set_env_text(struct spec *spec, struct arena *arena, const char *text,
                              struct err *err);
/* Adds the variables of `environ`, except DDP_* and those that are set already. `*left_out` counts
 * those that are not valid text. */
enum status spec_add_environ(struct spec *spec, struct arena *arena, char *const *environ,
                             uint32_t *left_out, struct err *err);
/* "N" or "MIN:MAX" of torchrun; MIN must equal MAX. */
enum status spec_nodes_parse(const char *text, uint32_t *nodes, struct err *err);
/* "-5", "10": PRIORITY_MIN..PRIORITY_MAX. */
enum status spec_priority_parse(const char *text, int32_t *priority, struct err *err);
/* A name from the command: "python3 -u x/train.py" is "train", "/usr/bin/env" is "env". Never
 * empty. */
void spec_default_name(const struct msg_text_list *argv, char name[JOB_NAME_BYTES_MAX]);
/* True: a name that the server takes. */
bool spec_name_is_valid(const char *name);
/* Makes the request, which borrows from `spec`. A value over a limit is an error. */
enum status spec_request(const struct spec *spec, const char *request_id, const char *name,
                         const char *cwd, struct msg_submit *submit, struct err *err);

#endif
