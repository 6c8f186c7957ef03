/* A server's core for few jobs and nodes, for the fuzz targets. */
#ifndef TESTS_FUZZ_SMALL_CORE_H
#define TESTS_FUZZ_SMALL_CORE_H

#include "rendezvous/core/rdzv.h"

#define SMALL_CORE_JOBS 16u
#define SMALL_CORE_NODES 4u

/* In place of the one before. */
struct rdzv *small_core_start(void);

#endif
