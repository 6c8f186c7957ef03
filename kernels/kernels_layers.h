/* Kernels of single layers: the input, pools, the loss, sums of columns, flatten.
 *
 * Activations are NHWC: [images][height][width][channels], the channels padded to a multiple of 4
 * (of 8 for 16-byte reads of halves); padding is computed like any other channel. Addresses of
 * activations are 16-byte aligned. Arithmetic is f32 unless a comment says double; results are
 * rounded once, to nearest even. Twins give the same bits on finite values. Every kernel is queued
 * on `stream` and returns 0 or the CUDA error of its launch (cudaErrorInvalidValue for a shape
 * against these rules); nothing is allocated or waited for, host pointers are read before it
 * returns, so all can be captured in a CUDA graph. All are deterministic. */
#ifndef KERNELS_KERNELS_LAYERS_H
#define KERNELS_KERNELS_LAYERS_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many channels a thread takes at once. */
static inline uint32_t kernel_pack(enum kernel_type type, uint32_t channels)
{
    return type != KERNEL_F32 && channels % 8 == 0 ? 8 : 4;
}

/* ---- input ---- */

#define KERNEL_IMAGE_CHANNELS 4 /* of what is written; those behind out_channels are 0 */

struct kernel_images {
    uint32_t images, height, width;
    uint32_t in_channels, out_channels; /* 1 to 4; equal, or one that becomes several */
    bool from_bytes;                    /* u8, else f32 from 0 to 1 */
    bool is_planar;                     /* [n][in][h][w], else [n][h][w][in] */
    enum kernel_type type;              /* of what is written */
    float mean[KERNEL_IMAGE_CHANNELS];  /* of each out channel; std > 0. 0 and 1: as it is */
    float std[KERNEL_IMAGE_CHANNELS];
};

/* y[n][h][w][4] = (x - mean) / std with x = byte / 255, rounded to `type`; written as
 * (x + -mean) * (1 / std). Source: torchvision's ToTensor and Normalize. Bound by memory: 3 bytes
 * read and 8 written a pixel (bytes to halves). */
void kernel_images_ref(const struct kernel_images *images, const void *x, void *y);
int kernel_images(const struct kernel_images *images, const void *x, void *y,
                  struct CUstream_st *stream);

/* ---- pools ---- */

struct kernel_pool {
    uint32_t images, height, width, channels;
    uint32_t kernel, stride, pad;   /* kernel 1 to 15, 2 * pad <= kernel */
    uint32_t out_height, out_width; /* every window reaches into the image */
    enum kernel_type type;
};

/* Maximum of each window, padding left out. best: [n][oh][ow][c], the maximum's place in its
 * window, row by row and padding counted; the first of several equal ones, a NaN wins (PyTorch's
 * max_pool2d); NULL in evaluation. Bound by memory: x is read once, windows overlap in the cache.
 */
void kernel_max_pool_ref(const struct kernel_pool *pool, const void *x, void *y, uint8_t *best);
int kernel_max_pool(const struct kernel_pool *pool, const void *x, void *y, uint8_t *best,
                    struct CUstream_st *stream);
/* dx[n][h][w][c] is written, not added to: for every input the sum, in f32, over the windows whose
 * maximum it was. */
void kernel_max_pool_backward_ref(const struct kernel_pool *pool, const void *dy,
                                  const uint8_t *best, void *dx);
int kernel_max_pool_backward(const struct kernel_pool *pool, const void *dy, const uint8_t *best,
                             void *dx, struct CUstream_st *stream);

/* y[n][c] = mean over `pixels` of x[n][pixels][c] and back: dx = dy / pixels, written. */
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
    uint32_t stride; /* elements from row to row, of logits and of grads; >= classes */
    enum kernel_type type, grad_type;
    bool labels_are_i64; /* else i32 */
    float smoothing;     /* 0 to 1 */
    float grad_scale;
};

/* One row's share of the result. */
struct kernel_loss_row {
    double loss;
    uint32_t top1, top5;
};

struct kernel_loss_result {
    double loss_sum;
    uint32_t top1, top5;
};

/* Softmax cross-entropy with label smoothing and its gradient:
 *   loss = (1 - e) * -log p[label] + e / classes * sum of -log p
 *   grad = (grad_scale * *scale / rows) * (p - (1 - e) * onehot - e / classes)
 *   top1, top5: rows whose label is first, among the first five; of equals the lower class comes
 *   first; a NaN score of the label is never right.
 * logits: [rows][stride], columns behind `classes` are not read; labels: [rows]. rows_out: [rows],
 * scratch and the parts of the result; result: written. grads: [rows][stride], columns behind
 * `classes` become 0; may be logits where the types are equal; NULL in evaluation. scale: one f32
 * (the loss scaler's), NULL: 1. A label out of range gives its row the loss and gradients NaN.
 * exp, log and sums are double: as accurate as worker/loss.c. One block a row, which stays in the
 * cache; a second launch of one block adds the rows. Source of the formula:
 * torch.nn.CrossEntropyLoss. */
void kernel_loss_ref(const struct kernel_loss *loss, const void *logits, const void *labels,
                     const float *scale, void *grads, struct kernel_loss_row *rows_out,
                     struct kernel_loss_result *result);
int kernel_loss(const struct kernel_loss *loss, const void *logits, const void *labels,
                const float *scale, void *grads, struct kernel_loss_row *rows_out,
                struct kernel_loss_result *result, struct CUstream_st *stream);

/* ---- sums of columns ---- */

/* sums[c] = sum over rows of x[rows][channels]: the gradient of a bias. Runs of 16 rows are added
 * in f32, runs in double. scratch: kernel_columns_bytes(..., 1), 8-byte aligned. Bound by memory: x
 * is read once. */
void kernel_columns_ref(const void *x, enum kernel_type type, size_t rows, uint32_t channels,
                        void *sums, enum kernel_type sums_type);
int kernel_columns(const void *x, enum kernel_type type, size_t rows, uint32_t channels, void *sums,
                   enum kernel_type sums_type, void *scratch, struct CUstream_st *stream);
/* Scratch of sums over columns, `kinds` of them at once. */
size_t kernel_columns_bytes(enum kernel_type type, size_t rows, uint32_t channels, uint32_t kinds);

/* ---- flatten ---- */

/* A flatten costs nothing: the activation [h][w][c] is taken as it lies, and the linear layer
 * behind it keeps its weights in that order of features. PyTorch's order is [c][h][w]; the weights
 * are turned when they are read or written (load, save, checkpoint: rarely), not the activations
 * and their gradients (every step). Refused: a kernel that transposes, 2 * 2 bytes an activation
 * and step. Plain C on the host; padded channels of `stored` are written as 0 and skipped. */
struct kernel_flatten {
    uint32_t channels, padded_channels, height, width;
};

/* from: [outputs][channels][height][width] as in PyTorch; stored: [outputs][h][w][padded]. */
void kernel_flatten_pack(const struct kernel_flatten *flatten, uint32_t outputs, const float *from,
                         float *stored);
void kernel_flatten_unpack(const struct kernel_flatten *flatten, uint32_t outputs,
                           const float *stored, float *to);

#ifdef __cplusplus
}
#endif

#endif
