/* Gives a rank its process: a warm worker, or a new process. */
#ifndef LAUNCHERD_SHIM_WORKER_SPAWN_H
#define LAUNCHERD_SHIM_WORKER_SPAWN_H

#include <net/if.h>

#include "common/log.h"
#include "launcherd/shim/shim_workers.h"
#include "launcherd/shim/worker_ends.h"

struct log_about worker_about(const struct shim_worker *worker);

/* What all workers of one start share. `env` points into this struct and into shim_workers. */
struct worker_spawn_facts {
    struct worker_env_facts env;
    char interface[IF_NAMESIZE];
};

/* Fills in what all workers have in their environment, except the account, master_addr, master_port
 * and interface. */
void worker_facts(const struct shim_workers *workers, struct worker_env_facts *facts);
/* Fills in all of `facts`, which must be zeroed. */
void worker_spawn_prepare(struct worker_spawn_facts *facts, const struct shim_workers *workers);
/* Sets the worker's pid and group. `null_fd`: its stdin if `ends` has none. `*exit_code` is set if
 * the process cannot be started (spawn.h). */
enum status worker_spawn(struct shim_worker *worker, struct worker_spawn_facts *facts, int null_fd,
                         const struct worker_ends *ends, int *exit_code, struct err *err);

#endif
