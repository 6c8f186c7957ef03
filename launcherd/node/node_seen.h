/* Keeps the record of the newest jobs (core/seen_record.h) in the state directory (seen_files.h). Of several records
 * that come while one is written, only the last is written too. */
#ifndef LAUNCHERD_NODE_NODE_SEEN_H
#define LAUNCHERD_NODE_NODE_SEEN_H

#include "launcherd/node/node_host.h"

struct node_seen {
    const struct node_host *host;
    struct file_work *saving; /* NULL: no */
    bool has_next;            /* `next` is newer */
    bool is_unsaved;          /* and it was logged */
    struct seen_record next;
};

/* Passes what is recorded to the core. */
void node_seen_open(struct node_seen *seen, const struct node_host *host);
void node_seen_save(struct node_seen *seen, const struct seen_record *record);

#endif
