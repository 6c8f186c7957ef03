/* A slow reference for a graph: its forward pass in double, written from the definitions, layer by
 * layer and without fusion. Central differences over it give the gradients that the net's are
 * compared with. */
#ifndef TESTS_NUMERICS_NET_NET_REFERENCE_H
#define TESTS_NUMERICS_NET_NET_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/graph/graph.h"

struct reference {
    const struct graph *graph;
    double *const *tensors; /* [tensor]: [graph->tensors[tensor].count] */
    const int64_t *labels;  /* [n] */
    uint32_t n;             /* images */
    double smoothing;       /* of the labels, in training alone */
    bool training;          /* norms use the statistics of the batch; else the running ones */
    bool update;            /* training moves the running statistics in `tensors` */
    double **values;        /* [layer]: [n][...], from reference_values_new */
};

/* Room for every layer's output; the input layer has images [n][channels][h][w]. The caller frees
 * it with reference_values_free. */
double **reference_values_new(const struct graph *graph, const float *images, uint32_t n);
void reference_values_free(const struct graph *graph, double **values);

/* The mean loss over the n images. Computes the layers from `first` on (1: all) and takes those
 * before it as they are in `values`: correct where only tensors of later layers have changed
 * since. */
double reference_loss(const struct reference *r, uint32_t first);

#endif
