/* From a command line to a request: options, a job specification, the environment. */
#ifndef DDPCTL_SUBMIT_H
#define DDPCTL_SUBMIT_H

#include "common/arena.h"
#include "ddpctl/ctl.h"
#include "ddpctl/spec.h"

struct submission {
    struct arena arena;
    struct spec spec;
    char request_id[REQUEST_ID_CHARS + 1];
    char name[JOB_NAME_BYTES_MAX];
    char cwd[4096];
    struct msg_submit request; /* borrows from here */
};

/* Reads ctl->words (SPEC.json, the command) and the options into `submission` (zeroed). 0, or the
 * exit code of what was wrong, which was said. submission_close in any case. */
int submission_make(struct submission *submission, struct ctl *ctl);
void submission_close(struct submission *submission);

#endif
