/* The overview of the cluster as an HTML page: jobs, nodes, GPUs. Needs no script. Everything from
 * jobs and nodes is escaped. Lists are limited and say how much they leave out. Pure, apart from
 * the heap. */
#ifndef DDPCTL_HTTP_PAGES_H
#define DDPCTL_HTTP_PAGES_H

#include <stdint.h>

#include "common/buf.h"
#include "ddpctl/http_metrics.h"

enum { HTTP_JOBS_SHOWN = 200, HTTP_ENDED_SHOWN = 20, HTTP_NODES_SHOWN = 64 };

struct http_index {
    struct http_view view;
    const char *server; /* the server's address */
    uint32_t page;      /* which page of the list of nodes, from 1 */
    uint32_t refresh_s; /* 0: the page does not reload */
};

void http_index_write(const struct http_index *index, struct buf *out);
/* A page with one sentence about a problem. `up`: the path to the overview, "" or "../". */
void http_problem_write(const char *title, const char *text, const char *up, struct buf *out);
/* The style of all pages. */
void http_style_write(struct buf *out);

#endif
