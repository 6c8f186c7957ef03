/* Private to worker/pth/: the classes and functions that the pickle machine knows. */
#ifndef WORKER_PTH_REBUILD_H
#define WORKER_PTH_REBUILD_H

#include <stdbool.h>

#include "worker/pth/machine.h"

/* Whether the table has module.name, and at which index. */
bool rebuild_find(struct machine_text module, struct machine_text name, uint32_t *index);
/* REDUCE: pushes what `what` returns for `args`. */
enum status rebuild_call(struct machine *m, uint32_t what, uint32_t args, struct err *err);
/* Whether `what` is a class of which objects become nothing. */
bool rebuild_is_nothing(const struct machine *m, uint32_t what);
/* BINPERSID: pushes the storage that a persistent id names. */
enum status rebuild_storage(struct machine *m, uint32_t id, struct err *err);

#endif
