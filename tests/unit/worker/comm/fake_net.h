/* A net without layers: tensors, buckets and a backward that writes known gradients, so that DDP is
 * tested alone. It implements those functions of worker/net/net.h that DDP calls. */
#ifndef TESTS_UNIT_WORKER_COMM_FAKE_NET_H
#define TESTS_UNIT_WORKER_COMM_FAKE_NET_H

#include "worker/net/net.h"
#include "worker/net/state.h"

#define FAKE_TENSORS_MAX 16
#define FAKE_BUCKETS_MAX 64
#define FAKE_TINY 0x1p-24F /* the smallest fp16 above 0 */

struct fake_plan {
    uint32_t rank;
    struct net_tensor tensors[FAKE_TENSORS_MAX];
    uint32_t tensor_count;
    uint32_t layouts[FAKE_TENSORS_MAX]; /* any number; goes into the hash */
    uint32_t order;                     /* any number; goes into the whole net's hash alone */
    size_t bucket_counts[FAKE_BUCKETS_MAX];
    uint32_t bucket_count;
    size_t buffer_count;
    bool
        is_f16; /* gradients are fp16, and so small that all are subnormal: FAKE_TINY times as large */
    uint32_t work_us;     /* computing before each bucket is ready, of this thread's CPU time */
    uint32_t fail_bucket; /* backward fails before this bucket; UINT32_MAX: never */
};

/* Two convolutions and a buffer, three buckets. */
struct fake_plan fake_plan_of(uint32_t rank);
struct net *fake_net_new(const struct fake_plan *plan);
void fake_net_free(struct net **net);
/* The memory itself. */
struct net_view fake_params(struct net *net);
struct net_view fake_buffers(struct net *net);
struct net_view fake_bucket(struct net *net, uint32_t index);
/* What backward writes at `i` of bucket `index` in step `step` (counted from 0) on `rank`, before
 * the scale. */
float fake_grad(uint32_t rank, uint32_t step, uint32_t index, size_t i);

#endif
