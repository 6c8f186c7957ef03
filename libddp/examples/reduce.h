/* An all-reduce of the example: NCCL's (nccl.c) or Gloo's (gloo.cc). */
#ifndef LIBDDP_EXAMPLES_REDUCE_H
#define LIBDDP_EXAMPLES_REDUCE_H

#include <stddef.h>

#include <ddp.h>

#ifdef __cplusplus
extern "C" {
#endif

struct reduce;

/* On rank 0 it puts what the others need to connect into blob [DDP_BLOB_BYTES_MAX]. NULL or 0: failed, and
 * `text` says why. */
struct reduce *reduce_new(const struct ddp_place *place, char *blob, size_t *blob_bytes, char *text,
                          size_t text_bytes);
/* All ranks, with the blob of rank 0. */
int reduce_connect(struct reduce *reduce, struct ddp *ddp, const char *blob, size_t blob_bytes,
                   char *text, size_t text_bytes);
/* All ranks: the sum of everybody's values, in place. */
int reduce_sum(struct reduce *reduce, float *values, size_t count, char *text, size_t text_bytes);
const char *reduce_name(const struct reduce *reduce);
void reduce_free(struct reduce *reduce);

#ifdef __cplusplus
}
#endif

#endif
