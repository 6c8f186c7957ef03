/* Sums over rows for the references, in the order of columns.h. */
#ifndef KERNELS_COLUMNS_REF_H
#define KERNELS_COLUMNS_REF_H

#include <stddef.h>
#include <stdint.h>

#define COLUMNS_REF_KINDS 2

/* Computes what one element adds to each sum, in f32. */
typedef void (*columns_terms)(const void *user, size_t row, uint32_t channel,
                              float terms[COLUMNS_REF_KINDS]);

/* sums[k] = sum over rows of terms[k], for one channel. pack: kernel_pack() of the layout. */
void columns_ref(columns_terms terms, const void *user, size_t rows, uint32_t channels,
                 uint32_t channel, uint32_t pack, double sums[COLUMNS_REF_KINDS]);

#endif
