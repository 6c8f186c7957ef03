/* --print-graph: the graph after each pass, with types, buckets and memory, as text. */
#ifndef WORKER_PRINT_GRAPH_H
#define WORKER_PRINT_GRAPH_H

#include <stdio.h>

#include "worker/graph.h"
#include "worker/net.h"

/* net_options.graph_seen with a FILE as its user. */
void print_graph_pass(void *user, const char *pass, const struct graph *graph);
/* How this machine computes each convolution and linear layer in a 16-bit type; nothing where there
 * is none. */
void print_graph_low(FILE *out, const struct net *net);
/* What the net took, and how many bytes a step reduces. */
void print_graph_memory(FILE *out, struct net *net);

#endif
