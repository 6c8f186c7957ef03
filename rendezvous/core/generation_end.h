/* The end of a generation: what follows for its job. Part of generation.h. */
#ifndef RENDEZVOUS_CORE_GENERATION_END_H
#define RENDEZVOUS_CORE_GENERATION_END_H

#include "rendezvous/core/job.h"

/* Call when every part has ended: restarts the job or ends it. A cancel takes precedence over
 * whatever else has happened. */
void generation_conclude(struct rdzv *rdzv, struct job *job);

#endif
