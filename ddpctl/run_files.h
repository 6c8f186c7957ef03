/* The files that an attached run writes below --log-dir. */
#ifndef DDPCTL_RUN_FILES_H
#define DDPCTL_RUN_FILES_H

#include "ddpctl/attach.h"

struct run_files {
    struct log_folder folder;
    struct duplicate duplicate;
};

/* Opens what the options ask for, and sets it in `attach`, which borrows it. `files` was zeroed; run_files_close
 * follows in any case. Returns an exit code, after an error was shown. */
int run_files_open(struct run_files *files, struct ctl *ctl, uint32_t rank_count,
                   struct attach_options *attach);
void run_files_close(struct run_files *files);

#endif
