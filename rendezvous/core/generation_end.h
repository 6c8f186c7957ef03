/* The end of a generation: what follows for its job. Part of generation.h. */
#ifndef RENDEZVOUS_CORE_GENERATION_END_H
#define RENDEZVOUS_CORE_GENERATION_END_H

#include "rendezvous/core/job.h"

/* Every part has ended: the job restarts, or ends. A cancel wins over whatever else has happened meanwhile. */
void generation_conclude(struct rdzv *rdzv, struct job *job);

#endif
