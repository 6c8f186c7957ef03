/* `rendezvous --backup FILE` and `--restore FILE`, which `ddpctl backup` and `ddpctl restore` run:
 * writes a state to a file or reads it back (rendezvous/store/backup.h). `rendezvous --new-cluster` makes an
 * empty state where there was one. No server runs in this process. */
#ifndef RENDEZVOUS_SERVER_TRANSFER_H
#define RENDEZVOUS_SERVER_TRANSFER_H

#include <stdbool.h>

#include "common/status.h"
#include "rendezvous/store/etcd_place.h"

struct transfer_options {
    const char *path;         /* the file; NULL: an empty state is made */
    bool is_restore, is_move; /* is_move: back up, and make the old state unusable */
    const char *state_dir;    /* used if etcd.url is NULL */
    struct etcd_settings etcd;
};

/* Prints the result as one line on stdout. STATUS_IO, if that line cannot be written. */
enum status transfer_run(const struct transfer_options *options, struct err *err);

#endif
