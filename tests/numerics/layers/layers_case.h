/* A case of tests/pytorch/layers.py: a small network as JSON, built with our builders, its numbers
 * drawn as PyTorch draws them. */
#ifndef TESTS_NUMERICS_LAYERS_LAYERS_CASE_H
#define TESTS_NUMERICS_LAYERS_LAYERS_CASE_H

#include <stdint.h>

#include <cjson/cJSON.h>

#include "worker/graph/graph.h"
#include "worker/net/net.h"
#include "worker/net/state.h"
#include "worker/data/rng.h"

struct layers_case {
    const cJSON *json; /* borrowed */
    const char *name;
    struct graph *graph;
    struct net *net;
    struct rng rng;
    float quantum; /* of images; parameters have a quarter; 0: as drawn */
    uint32_t seed, batch_max;
};

/* Builds the network and draws its tensors. Errors: STATUS_BAD_INPUT, or those of net_new. The
 * case is closed with layers_case_close in either event. */
enum status layers_case_open(struct layers_case *c, const cJSON *json, struct err *err);
void layers_case_close(struct layers_case *c);
/* The next batch: images [n][...], labels [n], owned by the caller (free). */
float *layers_case_images(struct layers_case *c, uint32_t n);
void layers_case_labels(const struct layers_case *c, uint32_t n, int64_t *labels);

#endif
