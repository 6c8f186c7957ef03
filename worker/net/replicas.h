/* torch.nn.DataParallel: one process, several devices; on a CPU, several threads.
 *
 * A step of the net and its replicas, as in torch/nn/parallel/data_parallel.py:
 *   replicate  parameters and buffers of the net are copied to every replica
 *   scatter    the batch is cut into parts as torch.chunk cuts it: the net gets the first
 *   apply      all compute forward and backward of their parts at the same time
 *   gather     results are summed; the replicas' gradients are added to the net's, in their order
 * The net alone has an optimizer and running statistics: those of the first part. Batch norms take their
 * statistics over each part. It is there to be compared with several ranks (DistributedDataParallel), which
 * copy no parameters, overlap the reduction with backward and need not share a process.
 *
 * Each replica is driven by a thread of its own, which also made it: a device of CUDA is current in a thread.
 * Gradients travel through host memory. One thread calls. */
#ifndef WORKER_NET_REPLICAS_H
#define WORKER_NET_REPLICAS_H

#include "worker/net/net.h"

#define REPLICAS_MAX 64

struct replicas;

struct replicas_options {
    uint32_t count;        /* replicas, the net included: 2 to REPLICAS_MAX */
    size_t image_elements; /* channels * height * width of an image */
    /* Called by the thread of replica `index` (1, 2, ...) before it makes its net, one thread at a
     * time. NULL: nothing is chosen. */
    void (*choose_device)(uint32_t index);
};

/* `net` is replica 0, and borrowed until replicas_free; it was made of `graph` with `net_options`. It gets
 * a reducer of its own. Errors: those of net_new, STATUS_SYSTEM (no thread), STATUS_CONFLICT (a device
 * chose another layout than the first). */
enum status replicas_new(struct replicas **replicas, struct net *net, const struct graph *graph,
                         const struct net_options *net_options,
                         const struct replicas_options *options, struct err *err);
void replicas_free(struct replicas **replicas);

/* The images of replica `index` in a batch of `n` for `count` replicas: how many, and the first of them; 0:
 * it has none. Source: torch.chunk, whose parts have ceil(n / count) images except for the last ones. */
uint32_t replicas_part(uint32_t n, uint32_t count, uint32_t index, uint32_t *first);

/* net_forward_images of all parts; `result` has the sums over them. Errors name the replica. */
enum status replicas_forward(struct replicas *replicas, const struct net_images *images,
                             const int64_t *labels, uint32_t n, bool training,
                             struct net_result *result, struct err *err);
/* net_backward of all parts: gradients of the mean loss over the whole batch, times grad_scale, are in the
 * net. After a training replicas_forward. */
enum status replicas_backward(struct replicas *replicas, float grad_scale, struct err *err);

#endif
