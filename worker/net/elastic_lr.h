/* --elastic-lr: the learning rate of a training whose number of ranks changes. Pure.
 *
 * Each rank keeps its batch, so the images of a step (ranks * batch * accumulation steps) change with the
 * ranks. --lr is for those of the first generation, which checkpoints keep:
 *
 *   keep    the rate stays as it is
 *   linear  it is multiplied by now / first (Goyal et al. 2017)
 *   sqrt    by the square root of that, which keeps the variance of an update (Hoffer et al. 2017) */
#ifndef WORKER_NET_ELASTIC_LR_H
#define WORKER_NET_ELASTIC_LR_H

#include <stdint.h>

enum elastic_lr { ELASTIC_LR_KEEP, ELASTIC_LR_LINEAR, ELASTIC_LR_SQRT };

/* -1: there is no such rule. */
int elastic_lr_named(const char *name);
const char *elastic_lr_name(enum elastic_lr rule);
/* What the rate is multiplied by; first_images 0: 1. */
double elastic_lr_factor(enum elastic_lr rule, uint64_t first_images, uint64_t images);

#endif
