/* The folders of launcherd when it starts, as work for threads (file_work.h). */
#ifndef LAUNCHERD_NODE_OPEN_FILES_H
#define LAUNCHERD_NODE_OPEN_FILES_H

#include <limits.h>

#include "common/io/folder_lock.h"
#include "common/status.h"
#include "common/io/file_work.h"
#include "launcherd/node/state_id.h"

struct open_files {
    struct file_work work;
    void *owner; /* for the loop */
    char dir[PATH_MAX];
    char boot_id[64], machine_id[IDENTITY_BYTES_MAX]; /* for the state directory's id */
    char key_name[NODE_NAME_BYTES_MAX]; /* of the key in the state directory; "": there is none */
    bool wants_key; /* without one launcherd would have a server and a name that nobody gave it */
    /* Results. */
    enum status status; /* STATUS_BUSY: another launcherd has the state directory */
    struct err err;
    struct folder_lock lock;
    char state_id[IDENTITY_BYTES_MAX], aside[64];
    enum state_id_found found;
};

/* NULL: no memory. `drop` is set. */
struct open_files *open_files_new(const char *dir, void *owner);
/* `run`: makes the folder of the logs. */
void open_files_logs(struct file_work *work);
/* `run`: makes the folders of the state directory, checks whose it is, locks it, and finds its
 * id. */
void open_files_state(struct file_work *work);

#endif
