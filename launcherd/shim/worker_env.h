/* The environment of one worker, made from nothing. We set USER, LOGNAME, PWD, the variables of torchrun
 * (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, ...), and every DDP_*: the job cannot
 * change these. Then come the variables that the job was submitted with. Last come our defaults for
 * variables that the job does not have, such as PATH, HOME, SHELL and LANG. */
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
    const char *interface;   /* the interface that has node_address; NULL: not known */
    uint32_t gpus;           /* GPUs of the node; 0: slots are CPU shares */
    const uint32_t *devices; /* [gpus]: the NVML index of slot i's GPU; NULL: i */
    bool hides_gpus;         /* with gpus 0: the machine's GPUs are not for this node */
    const char *tools_dir; /* the folder of ddp-worker, added at the end of PATH; NULL: not known */
    const char *python_dir; /* the folder of libddp.py, added to PYTHONPATH; NULL: not known */
    const char *token;
    const char *error_dir;    /* rundir_rank_dir: for PyTorch's error files, and for metrics */
    const char *user;         /* the account that the worker runs as */
    const char *home, *shell; /* used if the job has no HOME, SHELL */
    uint32_t shim_fd;
    bool has_store; /* the ranks use our c10d store: rank 0 serves none */
};

/* The "NAME=value" texts for `local`, ended by NULL, from `arena`; NULL: no memory. Each name is
 * there once: if the job has a variable that we set, our value is used. The job's DDP_* and
 * NCCL_SOCKET_MAGIC are left out, and names that are none: empty, or with a '='. */
char **worker_env_build(const struct worker_env_facts *facts, uint32_t local, struct arena *arena);
/* The PATH in that environment, or the default PATH. */
const char *worker_env_path(char *const *envp);
/* The slot of local rank `local`: the index of the (local + 1)-th bit of the mask. */
uint32_t worker_env_slot(uint64_t slot_mask, uint32_t local);

#endif
