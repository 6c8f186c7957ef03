/* Small files that launcherd keeps in its state directory, as work for threads (file_work.h): the record of the
 * slots, the key. */
#ifndef LAUNCHERD_NODE_KEEP_FILES_H
#define LAUNCHERD_NODE_KEEP_FILES_H

#include <limits.h>

#include "common/key.h"
#include "common/status.h"
#include "launcherd/core/slots_record.h"
#include "common/io/file_work.h"

struct slots_files {
    struct file_work work;
    void *owner; /* for the loop */
    char state_dir[PATH_MAX];
    struct slots_record record;
    /* Results. */
    enum status status;
    struct err err;
};

/* NULL: no memory. `drop` is set. */
struct slots_files *slots_files_new(const char *state_dir, void *owner);
/* `run`: reads, or replaces, the record (slots_file.h). */
void slots_files_read(struct file_work *work);
void slots_files_write(struct file_work *work);

struct key_files {
    struct file_work work;
    void *owner; /* for the loop */
    char state_dir[PATH_MAX], path[PATH_MAX];
    struct key key; /* overwritten when it is dropped */
    /* Results. */
    enum status status;
    struct err err;
};

/* NULL: no memory. `drop` is set. */
struct key_files *key_files_new(const char *state_dir, const char *name, const struct key *key,
                                void *owner);
/* `run`. */
void key_files_write(struct file_work *work);

#endif
