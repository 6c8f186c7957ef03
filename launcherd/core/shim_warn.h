/* The warning before the end of --time (--warn): a signal to the ranks, once in a generation. */
#ifndef LAUNCHERD_CORE_SHIM_WARN_H
#define LAUNCHERD_CORE_SHIM_WARN_H

#include "launcherd/core/shim.h"

/* In each step: starts the countdown when the workers run, and warns them when it is over. */
void shim_warn_check(struct shim *shim, uint64_t now_us, struct shim_actions *actions);
uint64_t shim_warn_timer_us(const struct shim *shim); /* UINT64_MAX: none */

#endif
