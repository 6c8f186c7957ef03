/* fp16 and bf16 in collectives. The CPU backend keeps such values as rounded floats; they are sent
 * as 16 bits and added as 16 bits, each sum rounded to nearest even, as NCCL does. */
#ifndef WORKER_COMM_HALF_H
#define WORKER_COMM_HALF_H

#include <stddef.h>
#include <stdint.h>

enum comm_half { COMM_F16, COMM_BF16 };

/* sum[i] = a[i] + b[i], each [count] u16; sum may be a or b. The signature is Gloo's. */
typedef void (*comm_half_add)(void *sum, const void *a, const void *b, size_t count);

comm_half_add comm_half_adder(enum comm_half type);
void comm_half_pack(enum comm_half type, const float *values, size_t count, uint16_t *halves);
void comm_half_unpack(enum comm_half type, const uint16_t *halves, size_t count, float *values);
/* Rounds floats to the type, in place. */
void comm_half_round(enum comm_half type, float *values, size_t count);

#endif
