/* The CPU backend behind a fence: a stand-in for a GPU's memory on machines without one.
 *
 * What memory_new gives out can be touched only while a call of the backend is running; anybody
 * else who reads or writes it dies of SIGSEGV. Views are copies, and poisoned behind their close.
 * The outcome of the newest step is not there yet unless it is waited for. A broken promise of
 * net_step_whole aborts. All else is the CPU's: the numbers are equal to the bit. */
#ifndef TESTS_LIB_FENCED_H
#define TESTS_LIB_FENCED_H

#include "worker/net_backend.h"

extern const struct backend backend_fenced;

/* Whether `memory` lies behind a fence. */
bool fenced_is_inside(const void *memory);
/* Steps that were announced by net_step_whole and kept the promise, over all nets. */
uint32_t fenced_whole_steps(void);

#endif
