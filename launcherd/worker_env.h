/* The environment of one worker: what the job was submitted with, and torchrun's variables on top.
 * Source: spec/torch-launcher-contract.md, section 1a. */
#ifndef LAUNCHERD_WORKER_ENV_H
#define LAUNCHERD_WORKER_ENV_H

#include <stdint.h>

#include "common/arena.h"
#include "common/msg.h"

struct worker_env_facts {
    const struct msg_start *start;
    const char *master_addr;
    uint32_t master_port;
    const char *node_name, *node_address;
    uint32_t gpus; /* of the node; 0: slots are CPU shares */
    const char *token;
    const char *error_dir;
    const char *home; /* where the job brings none */
    uint32_t shim_fd;
};

/* NULL-terminated "NAME=value" texts for `local`, from `arena`; NULL: no memory. A name stands
 * once: of a name that the job brought and that is set here, only ours. */
char **worker_env_build(const struct worker_env_facts *facts, uint32_t local, struct arena *arena);
/* PATH as that environment has it. */
const char *worker_env_path(char *const *envp);
/* The slot of local rank `local`: the index of the (local + 1)-th bit of the mask. */
uint32_t worker_env_slot(uint64_t slot_mask, uint32_t local);

#endif
