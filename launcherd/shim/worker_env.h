/* The environment of one worker, made from nothing. Ours, and nobody else's: USER and LOGNAME, the
 * contract of torchrun (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, ...), and every
 * DDP_*. Then the variables that the job was submitted with. PATH, HOME, SHELL and LANG are those of
 * this node where the job has none. */
#ifndef LAUNCHERD_SHIM_WORKER_ENV_H
#define LAUNCHERD_SHIM_WORKER_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/msg.h"

struct worker_env_facts {
    const struct msg_start *start;
    const char *master_addr;
    uint32_t master_port;
    const char *node_name, *node_address;
    const char *interface;   /* the one that has node_address; NULL: not known */
    uint32_t gpus;           /* of the node; 0: slots are CPU shares */
    const uint32_t *devices; /* [gpus]: slot i is this GPU of NVML; NULL: GPU i */
    bool hides_gpus;         /* with gpus 0: those of the machine are not for this node */
    const char *tools_dir;   /* the folder of ddp-worker, at the end of PATH; NULL: not known */
    const char *python_dir; /* the folder of libddp.py, at the end of PYTHONPATH; NULL: not known */
    const char *token;
    const char *error_dir;    /* rundir_rank_dir: for PyTorch's error files, and for metrics */
    const char *user;         /* the account that it runs as */
    const char *home, *shell; /* used where the job has no HOME, SHELL */
    uint32_t shim_fd;
    bool has_store; /* the ranks meet in a c10d store of ours: no rank serves one */
};

/* NULL-terminated "NAME=value" texts for `local`, from `arena`; NULL: no memory. Each name is there
 * once: where the job has a variable that is set here, the value is ours. What is no name of a
 * variable ([A-Za-z_][A-Za-z0-9_]*), and names of ours that are not set, are left out. */
char **worker_env_build(const struct worker_env_facts *facts, uint32_t local, struct arena *arena);
/* PATH in that environment. */
const char *worker_env_path(char *const *envp);
/* The slot of local rank `local`: the index of the (local + 1)-th bit of the mask. */
uint32_t worker_env_slot(uint64_t slot_mask, uint32_t local);

#endif
