/* Kernels of single layers: input images, pools, the loss, sums of columns, flatten.
 * Common rules: kernels.h.
 *
 * Layout: activations are NHWC, [images][height][width][channels]. Channels are padded to a
 * multiple of 4 (of 8 for 16-byte reads of halves); the padding is computed like any other channel.
 * Addresses of activations are 16-byte aligned.
 * Arithmetic: f32 unless a comment says double; results are rounded once, to nearest even. */
#ifndef KERNELS_LAYERS_H
#define KERNELS_LAYERS_H

#include "kernels/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- input images ---- */

#define KERNEL_IMAGE_CHANNELS 4

struct kernel_images {
    uint32_t images, height, width;
    uint32_t in_channels, out_channels; /* 1 to 4; equal, or in_channels is 1 (grey is copied) */
    uint32_t stored_channels;           /* 4 or 8 are written; those from out_channels on are 0 */
    bool from_bytes;                    /* input: u8, else f32 in [0, 1] */
    bool is_planar;                     /* input: [n][in][h][w], else [n][h][w][in] */
    enum kernel_type type;              /* output */
    float mean[KERNEL_IMAGE_CHANNELS];  /* per output channel; 0 for none */
    float std[KERNEL_IMAGE_CHANNELS];   /* per output channel, > 0; 1 for none */
};

/* Normalisation of the input:
 *   y[n][h][w][c] = (x - mean[c]) / std[c]       x = byte / 255, or the f32
 * Each operation is rounded to fp32, the result to `type`. A product with 1 / std would differ from
 * torchvision's quotient in the last bit.
 *   x: type and order according to from_bytes and is_planar
 *   y: [images][height][width][stored_channels]
 * Speed: bound by memory; bytes to halves reads 3 bytes and writes 8 or 16 per pixel.
 * Source: torchvision's ToTensor and Normalize. */
void kernel_images_ref(const struct kernel_images *images, const void *x, void *y);
int kernel_images(const struct kernel_images *images, const void *x, void *y,
                  struct CUstream_st *stream);

/* ---- pools ---- */

struct kernel_pool {
    uint32_t images, height, width, channels;
    uint32_t kernel, stride, pad;   /* kernel 1 to 15, 2 * pad <= kernel */
    uint32_t out_height, out_width; /* every window covers at least one pixel of the image */
    enum kernel_type type;
};

/* y = maximum of each window; padding never wins.
 *   x:    [images][height][width][channels]
 *   y:    [images][out_height][out_width][channels]
 *   best: as y, u8: where in its window the maximum was, ky * kernel + kx. The first of several
 *         equal values wins, a NaN wins over all. NULL in evaluation.
 * Speed: bound by memory; x is read once, overlapping windows hit the cache.
 * Source: torch.nn.MaxPool2d. */
void kernel_max_pool_ref(const struct kernel_pool *pool, const void *x, void *y, uint8_t *best);
int kernel_max_pool(const struct kernel_pool *pool, const void *x, void *y, uint8_t *best,
                    struct CUstream_st *stream);

/* dx = sum of dy over the windows whose maximum the input was; added in f32.
 *   dy, best: [images][out_height][out_width][channels]
 *   dx:       [images][height][width][channels], overwritten */
void kernel_max_pool_backward_ref(const struct kernel_pool *pool, const void *dy,
                                  const uint8_t *best, void *dx);
int kernel_max_pool_backward(const struct kernel_pool *pool, const void *dy, const uint8_t *best,
                             void *dx, struct CUstream_st *stream);

/* Mean over all pixels of an image, and its gradient:
 *   y[n][c] = sum over p of x[n][p][c] / pixels
 *   dx[n][p][c] = dy[n][c] / pixels
 *   x, dx: [images][pixels][channels];  y, dy: [images][channels]; outputs are overwritten
 * Source: torch.nn.AdaptiveAvgPool2d(1). */
void kernel_avg_pool_ref(const void *x, void *y, enum kernel_type type, uint32_t images,
                         uint32_t pixels, uint32_t channels);
int kernel_avg_pool(const void *x, void *y, enum kernel_type type, uint32_t images, uint32_t pixels,
                    uint32_t channels, struct CUstream_st *stream);
void kernel_avg_pool_backward_ref(const void *dy, void *dx, enum kernel_type type, uint32_t images,
                                  uint32_t pixels, uint32_t channels);
int kernel_avg_pool_backward(const void *dy, void *dx, enum kernel_type type, uint32_t images,
                             uint32_t pixels, uint32_t channels, struct CUstream_st *stream);

/* ---- loss ---- */

struct kernel_loss {
    uint32_t rows, classes;
    uint32_t stride; /* elements from one row to the next, in logits and grads; >= classes */
    enum kernel_type type, grad_type;
    bool labels_are_i64; /* else i32 */
    float smoothing;     /* e below: 0 to 1 */
    float grad_scale;
};

/* What one row adds to the result. */
struct kernel_loss_row {
    double loss;
    uint32_t top1, top5;
};

struct kernel_loss_result {
    double loss_sum;
    uint32_t top1, top5;
};

/* Softmax cross-entropy with label smoothing e, and its gradient:
 *   p    = softmax(logits of the row)
 *   loss = -(1 - e) * log p[label] - e / classes * sum over c of log p[c]
 *   grad = grad_scale * scale / rows * (p - (1 - e) * onehot(label) - e / classes)
 *   top1, top5: the label is the best class, is among the best five. Of equal logits the lower
 *               class ranks first. A row whose label has the logit NaN counts as wrong.
 *
 *   logits:   [rows][stride] of `type`; columns from `classes` on are not read
 *   labels:   [rows] of i64 or i32; a label out of range gives loss and gradients NaN in its row
 *   scale:    one f32, the loss scale; NULL: 1
 *   grads:    [rows][stride] of grad_type; columns from `classes` on become 0. May be logits if the
 *             types are equal. NULL in evaluation.
 *   rows_out: [rows], scratch
 *   result:   overwritten
 *
 * exp, log and sums are double, as accurate as the CPU backend's loss (worker/net/loss.c).
 * Speed: one block per row, which stays in the cache; a second launch of one block adds the rows.
 * Source: torch.nn.CrossEntropyLoss. */
void kernel_loss_ref(const struct kernel_loss *loss, const void *logits, const void *labels,
                     const float *scale, void *grads, struct kernel_loss_row *rows_out,
                     struct kernel_loss_result *result);
int kernel_loss(const struct kernel_loss *loss, const void *logits, const void *labels,
                const float *scale, void *grads, struct kernel_loss_row *rows_out,
                struct kernel_loss_result *result, struct CUstream_st *stream);

/* ---- sums of columns ---- */

/* The gradient of a bias:
 *   sums[c] = sum over r of x[r][c]
 * Runs of 16 rows are added in f32, the runs in double.
 *   x:       [rows][channels] of `type`, channels a multiple of 4
 *   sums:    [channels] of sums_type
 *   scratch:  kernel_columns_bytes(type, rows, channels, 1) bytes, 16-byte aligned
 *   counters: [KERNEL_COLUMNS_COUNTERS], 0 before and after. Launches on one stream may share them
 * Speed: bound by memory; x is read once. One launch: the block that ends last adds the others'
 * sums. rows * channels / kernel_pack() is at most INT32_MAX. */
void kernel_columns_ref(const void *x, enum kernel_type type, size_t rows, uint32_t channels,
                        void *sums, enum kernel_type sums_type);
int kernel_columns(const void *x, enum kernel_type type, size_t rows, uint32_t channels, void *sums,
                   enum kernel_type sums_type, void *scratch, uint32_t *counters,
                   struct CUstream_st *stream);
#define KERNEL_COLUMNS_COUNTERS 132

/* Bytes of scratch for `kinds` sums of each column, made in one pass. Host code. */
size_t kernel_columns_bytes(enum kernel_type type, size_t rows, uint32_t channels, uint32_t kinds);

/* ---- flatten ---- */

/* Flattening costs nothing in a step. The activation [h][w][c] is used in the order in which it is
 * stored, and the linear layer that follows keeps its weights in that order. PyTorch orders
 * features as [c][h][w], so the weights are permuted when they are loaded or saved, which is rare.
 * Refused: transposing the activations, 4 bytes of traffic per half and step.
 * Host code; there is no kernel. */
struct kernel_flatten {
    uint32_t channels, padded_channels, height, width;
};

/* Permute a weight matrix from PyTorch's order to ours (pack) and back (unpack).
 *   from, to: [outputs][channels][height][width]
 *   stored:   [outputs][height][width][padded_channels]; pack writes 0 to the padding */
void kernel_flatten_pack(const struct kernel_flatten *flatten, uint32_t outputs, const float *from,
                         float *stored);
void kernel_flatten_unpack(const struct kernel_flatten *flatten, uint32_t outputs,
                           const float *stored, float *to);

#ifdef __cplusplus
}
#endif

#endif
