/* fp16 and bf16 on the wire: the net keeps them as floats that are rounded already, the ring adds
 * them as 16 bits, each sum rounded to nearest even (as NCCL does in that type). */
#ifndef WORKER_COMM_COMM_HALF_H
#define WORKER_COMM_COMM_HALF_H

#include <stddef.h>
#include <stdint.h>

enum comm_half { COMM_F16, COMM_BF16 };

/* sum[i] = a[i] + b[i]; Gloo's shape: [count] u16 each, sum may be a or b. */
typedef void (*comm_half_add)(void *sum, const void *a, const void *b, size_t count);

comm_half_add comm_half_adder(enum comm_half type);
void comm_half_pack(enum comm_half type, const float *values, size_t count, uint16_t *halves);
void comm_half_unpack(enum comm_half type, const uint16_t *halves, size_t count, float *values);
/* To the nearest of the type, in place. */
void comm_half_round(enum comm_half type, float *values, size_t count);

#endif
