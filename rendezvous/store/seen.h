/* The newest commit of a state on etcd that this server has seen, in a small file of its state
 * directory. etcd itself does not notice that it was put back to an earlier state (`etcdctl snapshot
 * restore`, an old data folder). Then the state has the same cluster id, and would give numbers of jobs
 * and events a second time. */
#ifndef RENDEZVOUS_STORE_SEEN_H
#define RENDEZVOUS_STORE_SEEN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

#define SEEN_ID_BYTES 33u

struct seen {
    char cluster[SEEN_ID_BYTES];
    char restore[SEEN_ID_BYTES]; /* id of the restore that made this state; "-": none */
    uint64_t commit;
    uint64_t job_id, event_id; /* the last ones that were given */
};

/* False: there is none, or it cannot be read. */
bool seen_read(const char *path, struct seen *seen);
/* Does nothing if the file has the same or a later commit of the same state. Errors: STATUS_IO. */
enum status seen_write(const char *path, const struct seen *seen, struct err *err);
/* Whether both are of one state, so that commits can be compared. */
bool seen_is_same(const struct seen *one, const struct seen *other);

#endif
