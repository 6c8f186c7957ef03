/* One arena for what a step makes and forgets: every buffer has a life in the step's order of work
 * (forward of layer i at time i, backward at 2 * layers - 1 - i), and buffers whose lives do not
 * meet share memory. */
#ifndef WORKER_BACKEND_CPU_CPU_PLAN_H
#define WORKER_BACKEND_CPU_CPU_PLAN_H

#include <stddef.h>
#include <stdint.h>

struct cpu_plan_item {
    size_t bytes;
    uint32_t birth, death; /* both included */
    size_t offset;         /* cpu_plan's answer: a multiple of 64 */
};

/* Places the items, the largest first, each as low as those already placed leave room. Returns the
 * arena's size in bytes. `scratch`: [2 * count], any content. */
size_t cpu_plan(struct cpu_plan_item *items, uint32_t count, uint32_t *scratch);

#endif
