/* Keeps a snapshot of the cluster (cluster.h) up to date within `interval_us`, and gauges of those
 * nodes that its owner wants. An edge on a libuv loop: two connections to the server, one for its
 * lists, one for questions to nodes. After a reading that took long it pauses longer, so that a
 * large cluster is not read all the time.
 *
 *   job_list -> jobs ...      pages of the jobs that wait and run
 *   job_get @last, job_list   the newest jobs, ended ones too
 *   node_list -> nodes ...    pages of all nodes
 *   server_get                the server's state: connections, disk writes and so on
 *   job_get -> job_info ...   one job with its ranks, if one is watched
 *   node_read -> node_data    gauges of a node, a few at a time, on the second connection */
#ifndef DDPCTL_COLLECT_H
#define DDPCTL_COLLECT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "ddpctl/client.h"
#include "ddpctl/cluster.h"
#include "ddpctl/job_pages.h"

#define COLLECT_ASKED_MAX 32u /* most questions to nodes at a time */

struct collect;

struct collect_handlers {
    /* A new snapshot is complete: `collect->cluster`. Pointers into the old one are invalid. */
    void (*on_snapshot)(struct collect *collect);
    /* Gauges of that node arrived, or the question failed. May be NULL. */
    void (*on_gauges)(struct collect *collect, const struct gauges_row *row);
    /* The server does not answer; still trying. */
    void (*on_waiting)(struct collect *collect, const struct err *err);
    /* The server cannot be used. No other handler follows; the handles are closing. */
    void (*on_failed)(struct collect *collect, const struct err *err);
};

struct collect_options {
    uv_loop_t *loop;
    const struct server *server;
    uint64_t interval_us;  /* from one snapshot to the next */
    uint64_t patience_us;  /* how long to try to reach the server */
    bool first_is_patient; /* try as long for a server that was never reached */
    uint32_t newest;       /* how many of the newest jobs are wanted; 0: none */
    const struct collect_handlers *handlers;
    void *owner;
};

enum collect_stage {
    COLLECT_IDLE,
    COLLECT_JOBS,
    COLLECT_LAST,
    COLLECT_NEWEST,
    COLLECT_NODES,
    COLLECT_SERVER,
    COLLECT_WATCHED,
};

struct collect {
    struct collect_options options;
    struct client client, node_client;
    uv_timer_t timer;
    enum collect_stage stage;
    bool is_closed;
    struct cluster cluster, next; /* the complete one, and the one being read */
    struct gauges_table gauges;
    char watched_name[JOB_NAME_BYTES_MAX];  /* empty: none */
    struct job_pages watched, watched_next; /* `watched` is empty until a job was read */
    char watched_problem[512];              /* not empty: why the job could not be read */
    uint64_t begun_us, took_us; /* start of the current reading; duration of the last one */
    uint64_t last_id;           /* the last job of the previous page */
    uint64_t newest_id;         /* the newest of all jobs */
    char last_node[NODE_NAME_BYTES_MAX];
    uint64_t lost_us;   /* since when the server has not answered; 0: it does */
    char lost_why[256]; /* why it does not; empty: it does */
    uint32_t asked_count;
    uint64_t gauges_off_until_us; /* the server does not support or allow such questions */
};

void collect_open(struct collect *collect, const struct collect_options *options);
/* Asks that node for its gauges, unless they are younger than `age_us`, its answer is pending, or
 * too many questions are pending. False: too many are pending. */
bool collect_want(struct collect *collect, const char *node, uint64_t age_us);
/* From now on also reads that job with its ranks; an id, a name or @last. Empty: none. */
void collect_watch(struct collect *collect, const char *job);
/* Reads a new snapshot now, if none is being read. */
void collect_now(struct collect *collect);
/* The handles are free after the loop's next turns. */
void collect_close(struct collect *collect);
/* After the loop has ended. */
void collect_free(struct collect *collect);

#endif
