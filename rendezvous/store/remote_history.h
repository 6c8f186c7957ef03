/* See remote_history.c. */
#ifndef RENDEZVOUS_STORE_REMOTE_HISTORY_H
#define RENDEZVOUS_STORE_REMOTE_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/store/etcd_client.h"

/* How the message begins in both places that detect it. */
#define STORE_WENT_BACK "etcd has an earlier state than this server has seen"

/* The same for a state.db. */
#define STORE_FILE_WENT_BACK "state.db has an earlier state than its directory has seen"

/* A commit, and the revision of etcd at which it was made. */
struct remote_point {
    uint64_t commit;
    int64_t at;
};

/* Reads it from the row `seq`. False: the row is damaged. */
bool remote_take_point(struct remote_point *point, const struct etcd_row *row);
/* Whether the newest commit at `revision` is still this one. *now: etcd's revision when it answered. Errors: STATUS_NOT_FOUND with
 * ETCD_WENT_BACK: it is not; with ETCD_COMPACTED: that revision was dropped. */
enum status remote_check_history(struct etcd_client *client, const char *prefix, int64_t revision,
                                 const struct remote_point *point, uint64_t deadline_us,
                                 int64_t *now, struct err *err);

#endif
