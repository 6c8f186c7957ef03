/* Draws `ddpctl top` and handles its keys. Pure, apart from the heap: a snapshot, a state and a
 * size in, lines out. It never has more lines than rows, nor a line wider than the columns. Text
 * from jobs and nodes is escaped.
 *
 *   overview   jobs above, nodes below; one of them has the focus
 *   a job      what it does, and its ranks with their GPUs
 *   a node     its load and its slots
 *   help */
#ifndef DDPCTL_TOP_VIEW_H
#define DDPCTL_TOP_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "ddpctl/cluster.h"
#include "ddpctl/top_keys.h"

enum top_screen { TOP_OVERVIEW, TOP_JOB, TOP_NODE, TOP_HELP };
enum top_pane { TOP_JOBS, TOP_NODES };
enum top_sort_jobs { TOP_BY_QUEUE, TOP_BY_PROGRESS, TOP_BY_RATE, TOP_BY_USER, TOP_SORTS_OF_JOBS };
enum top_sort_nodes { TOP_BY_NAME, TOP_BY_FREE, TOP_BY_TROUBLE, TOP_SORTS_OF_NODES };

enum { TOP_ROWS_MIN = 8, TOP_COLUMNS_MIN = 30 };

struct top_view {
    const struct cluster *cluster; /* taken_us 0: there is no snapshot yet */
    const struct gauges_table *gauges;
    const char *server;
    const char *lost_why;           /* empty: the server answers */
    const struct msg_job_info *job; /* for TOP_JOB, with its ranks; NULL: not read yet */
    const char *job_problem;        /* not empty: why it cannot be read */
    uint64_t now_us;
    int64_t now_ms;
    uint32_t rows, columns;
    bool is_terminal; /* keys work, so the selected row and the keys are shown */
    bool has_color;
};

/* The selection in a list. */
struct top_place {
    uint32_t at, first; /* the selected row, the first visible one */
};

/* It must be zeroed first. */
struct top_state {
    enum top_screen screen, below; /* `below`: the screen under the help */
    enum top_pane pane;
    uint32_t sorts[2];         /* of the jobs, of the nodes */
    struct top_place lists[2]; /* of the overview */
    struct top_place ranks, slots;
    char job[JOB_NAME_BYTES_MAX];   /* TOP_JOB: number, name or @last */
    char node[NODE_NAME_BYTES_MAX]; /* TOP_NODE */
    bool job_is_fixed;              /* only TOP_JOB was requested */
    bool is_over;
};

void top_key(struct top_state *state, const struct top_view *view, enum top_key key);
/* Appends the lines, each with a line feed. */
void top_draw(struct top_state *state, const struct top_view *view, struct buf *out);
/* After top_draw, calls `want` for each node whose gauges are shown. If it returns false, stops. */
void top_wanted(const struct top_state *state, const struct top_view *view,
                bool (*want)(void *owner, const char *node), void *owner);

#endif
