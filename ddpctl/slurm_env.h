/* What Slurm's variables say about our allocation (man sbatch, salloc, srun: "OUTPUT ENVIRONMENT
 * VARIABLES"), and which of them must not be passed on. Pure. */
#ifndef DDPCTL_SLURM_ENV_H
#define DDPCTL_SLURM_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

#define SLURM_ID_BYTES 24

struct slurm_env {
    char job_id[SLURM_ID_BYTES];
    uint32_t nodes;
    uint32_t restart_count; /* how often Slurm has requeued the job */
    uint32_t step_tasks;    /* of the step that we are in; 0: we are in no step */
    /* For each node; 0: Slurm does not say, or nodes differ. */
    uint32_t tasks, gpus, cpus;
    bool tasks_differ, cpus_differ;
};

/* `environ` ends with NULL.
 *   STATUS_NOT_FOUND  not in an allocation
 *   STATUS_BAD_INPUT  a variable has not the form that Slurm gives it, the job is heterogeneous, or
 *                     srun has started several of us */
enum status slurm_env_read(char *const *environ, struct slurm_env *env, struct err *err);
/* Chooses the job's nodes. `*nodes`: in, what it asks for, 0: all that there are; out, what it
 * gets. `nodes_min`: the fewest that it can go on with, 0: no fewer. `spares`: further nodes.
 *   STATUS_TOO_BIG  the allocation has fewer */
enum status slurm_env_nodes(const struct slurm_env *env, uint32_t nodes_min, uint32_t spares,
                            uint32_t *nodes, struct err *err);
/* Chooses the ranks of each node. `word`: gpu, cpu, auto, or NULL: the requested tasks if there are
 * several a node, otherwise the GPUs, otherwise 1. STATUS_NOT_FOUND: Slurm does not say. */
enum status slurm_env_nproc(const struct slurm_env *env, const char *word, uint32_t *nproc,
                            struct err *err);

/* Whether "NAME=VALUE" is about one task of one step and so wrong for any other process. Ranks get
 * none of these. */
bool slurm_env_is_of_task(const char *variable);
/* Whether the variable is the default of an srun option that would keep our step from getting whole
 * nodes. */
bool slurm_env_is_of_srun(const char *variable);

#endif
