/* What a job shall be: from a JSON file, from options, from the environment; and the request made
 * of it. */
#ifndef DDPCTL_SPEC_H
#define DDPCTL_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/msg.h"
#include "common/status.h"

#define SPEC_RESTARTS_DEFAULT 3u
#define SPEC_FILE_BYTES_MAX (1024u * 1024u)

/* Texts live in the arena that it was made with. */
struct spec {
    const char *name; /* NULL: from argv */
    const char *cwd;  /* NULL: where ddpctl runs */
    uint32_t nodes, nproc_per_node;
    bool nproc_given;
    uint32_t max_restarts;
    uint64_t grace_us, time_limit_us;
    struct msg_text_list argv;
    struct msg_pair *env; /* [env_count], room for ENV_MAX; names are unique */
    uint32_t env_count;
};

/* Defaults. STATUS_MEMORY. */
enum status spec_init(struct spec *spec, struct arena *arena, struct err *err);
/* A JSON job specification over what is there: keys name nodes nproc_per_node argv env cwd
 * max_restarts grace time (times as "5m" or a number of seconds). Strict: an unknown key is refused
 * with its line and a guess. `file` is for the message. STATUS_BAD_INPUT, STATUS_TOO_BIG,
 * STATUS_MEMORY. */
enum status spec_parse(struct spec *spec, struct arena *arena, const char *file, const char *text,
                       size_t byte_count, struct err *err);
/* Set or replace a variable; `name` of [A-Za-z_][A-Za-z0-9_]*. The platform's own (DDP_*) are
 * refused. */
enum status spec_set_env(struct spec *spec, struct arena *arena, const char *name,
                         const char *value, struct err *err);
/* "NAME=VALUE", or "NAME" with the value of `environ`. */
enum status spec_set_env_text(struct spec *spec, struct arena *arena, const char *text,
                              struct err *err);
/* All of `environ` that may travel, under what was set before; `*left_out` counts what is no valid
 * text. */
enum status spec_add_environ(struct spec *spec, struct arena *arena, char *const *environ,
                             uint32_t *left_out, struct err *err);
/* torchrun's "N" or "MIN:MAX"; MIN must equal MAX so far. */
enum status spec_nodes_parse(const char *text, uint32_t *nodes, struct err *err);
/* A name from the command: "python3 -u x/train.py" is "train", "/usr/bin/env" is "env". Never
 * empty. */
void spec_default_name(const struct msg_text_list *argv, char name[JOB_NAME_BYTES_MAX]);
/* True: a name that the server takes. */
bool spec_name_is_valid(const char *name);
/* The request; borrows from `spec`. What cannot travel is refused in words. */
enum status spec_request(const struct spec *spec, const char *request_id, const char *name,
                         const char *cwd, struct msg_submit *submit, struct err *err);

#endif
