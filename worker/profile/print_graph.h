/* --print-graph: the graph after each pass, with types, buckets and memory, as text. */
#ifndef WORKER_PROFILE_PRINT_GRAPH_H
#define WORKER_PROFILE_PRINT_GRAPH_H

#include <stdio.h>

#include "worker/graph/graph.h"
#include "worker/net/net.h"

/* For net_options.graph_seen; user is a FILE. */
void print_graph_pass(void *user, const char *pass, const struct graph *graph);
/* For each convolution and linear layer in a 16-bit type: how this machine computes it. */
void print_graph_half(FILE *out, const struct net *net);
/* Bytes of the net, and bytes that a step reduces. */
void print_graph_memory(FILE *out, struct net *net);

#endif
