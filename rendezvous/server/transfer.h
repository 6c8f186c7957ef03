/* `rendezvous --backup FILE` and `--restore FILE`, which `ddpctl backup` and `ddpctl restore` run: a state to a file and
 * back (rendezvous/store/backup.h). No server runs in this process. */
#ifndef RENDEZVOUS_SERVER_TRANSFER_H
#define RENDEZVOUS_SERVER_TRANSFER_H

#include <stdbool.h>

#include "common/status.h"
#include "rendezvous/store/etcd_place.h"

struct transfer_options {
    const char *path;         /* the file */
    bool is_restore, is_move; /* is_move: of a backup; the state is not used here any more */
    const char *state_dir;    /* where etcd.url is NULL */
    struct etcd_settings etcd;
};

/* Prints what was done as one line on stdout. */
enum status transfer_run(const struct transfer_options *options, struct err *err);

#endif
