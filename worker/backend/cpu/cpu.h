/* The backend on the CPU: oneDNN for convolutions and linear layers, our own loops (kernels.h) for
 * the rest. oneDNN computes with net_options.threads threads, our loops with one.
 *
 * Values are fp32 in blocks of channels. A 16-bit value is stored as fp32 and rounded wherever a
 * GPU would store it, so that losses equal those of a GPU up to the order of sums. With AMX or
 * AVX512_BF16, bf16 convolutions and linear layers are computed in bf16 (half.h). */
#ifndef WORKER_BACKEND_CPU_CPU_H
#define WORKER_BACKEND_CPU_CPU_H

#include "worker/net/backend.h"

/* For net_options.backend. */
extern const struct backend backend_cpu;

#endif
