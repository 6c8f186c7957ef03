/* What a net reports about itself: its graph, its memory, the time that its pieces took. */
#ifndef WORKER_NET_PROFILE_H
#define WORKER_NET_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/graph/graph.h"
#include "worker/net/net.h"

enum net_phase {
    NET_PHASE_INPUT, /* images on their way to the first layer */
    NET_PHASE_FORWARD,
    NET_PHASE_BACKWARD,
    NET_PHASE_REDUCE, /* gradients of all ranks, where the device reduces them */
    NET_PHASE_OPTIMIZER,
    NET_PHASES
};

/* Time that one piece of work took while the profile was on. */
struct net_profile {
    const char *layer; /* "layer1.0"; of work outside all layers its name, "optimizer" */
    const char *work;  /* "forward", "backward", ...; "conv ..." is time inside oneDNN */
    uint32_t index;    /* of the layer in net_graph; GRAPH_NONE: outside all layers */
    enum net_phase phase;
    bool is_beside; /* overlaps other work, so it is no part of the step's own time */
    uint64_t calls;
    uint64_t ns; /* sum over the calls */
};

/* A convolution or linear layer in a 16-bit type. */
struct net_half_layer {
    const char *name;
    enum graph_dtype dtype;
    bool is_computed; /* by the hardware in that type; else in fp32, and the result is rounded */
};

/* Entry `index` of the profile; false past the last, or without net_options.profile. On a GPU it
 * covers the steps that net_update has ended, each of which waited for the device. */
bool net_profile(const struct net *net, uint32_t index, struct net_profile *profile);
/* Between two steps, with net_options.profile: sets whether later steps are timed. Counts are kept.
 * A step that is not timed runs as in a net without a profile. */
void net_profile_set(struct net *net, bool is_on);

/* The index-th layer in a 16-bit type; false past the last. */
bool net_half_layer(const struct net *net, uint32_t index, struct net_half_layer *half);
/* The graph after all passes; the net's. */
const struct graph *net_graph(const struct net *net);
/* Whether values of 16-bit types take 16 bits in memory. */
bool net_stores_types(const struct net *net);
/* Threads with which the CPU computes what the calling thread asks for: net_options.threads, or
 * OpenMP's choice. The order of sums depends on it. 0: a device computes. */
uint32_t net_threads(const struct net *net);
/* Bytes that the net has allocated, the backend's included. */
size_t net_bytes(const struct net *net);

#endif
