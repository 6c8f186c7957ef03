/* The process of one rank: one that was warm takes its place, or a new one is started. */
#ifndef LAUNCHERD_SHIM_WORKER_SPAWN_H
#define LAUNCHERD_SHIM_WORKER_SPAWN_H

#include <net/if.h>

#include "common/log.h"
#include "launcherd/shim/shim_workers.h"
#include "launcherd/shim/worker_ends.h"

struct log_about worker_about(const struct shim_worker *worker);

/* What all workers of this start share. `env` points into it and into the workers'. */
struct worker_spawn_facts {
    struct worker_env_facts env;
    char interface[IF_NAMESIZE];
};

/* What the environment of every worker has; without account, master_addr and master_port. */
void worker_facts(const struct shim_workers *workers, struct worker_env_facts *facts);
/* `facts`: zeroed. */
void worker_spawn_prepare(struct worker_spawn_facts *facts, const struct shim_workers *workers);
/* Sets pid and group of the worker. `null_fd`: its stdin where it has none. `*exit_code` is set on a failure that
 * has one (spawn.h). */
enum status worker_spawn(struct shim_worker *worker, struct worker_spawn_facts *facts, int null_fd,
                         const struct worker_ends *ends, int *exit_code, struct err *err);

#endif
