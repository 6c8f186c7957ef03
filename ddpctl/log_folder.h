/* The folder of a run below --log-dir: DIR/1, of the next run DIR/2. Nodes keep their logs in folders of their
 * own names beside it (launcherd/process/log_place.h), so that several clusters may share DIR. */
#ifndef DDPCTL_LOG_FOLDER_H
#define DDPCTL_LOG_FOLDER_H

#include <limits.h>
#include <stdint.h>

#include "common/status.h"
#include "ddpctl/screen.h"

struct log_folder {
    char dir[PATH_MAX];  /* --log-dir */
    char path[PATH_MAX]; /* the folder in it; empty: none could be made */
    int64_t since_ms;    /* when this run began */
};

/* Makes DIR, and the folder of the first free number in it. Errors as private_folder. */
enum status log_folder_make(struct log_folder *folder, const char *dir, struct err *err);
/* Makes links to the logs of this run that nodes have kept in DIR: g1-rank0.log. Says where they are. */
void log_folder_tell(const struct log_folder *folder, struct screen *screen);

#endif
