/* Makes a submit request from options, a job specification, and the environment. */
#ifndef DDPCTL_SUBMIT_H
#define DDPCTL_SUBMIT_H

#include "common/arena.h"
#include "ddpctl/caller.h"
#include "ddpctl/ctl.h"
#include "ddpctl/spec.h"
#include "ddpctl/stage_pack.h"
#include "ddpctl/torchrun.h"

#define SUBMISSION_SIZE_BYTES 24

struct submission {
    struct arena arena;
    struct spec spec;
    char request_id[REQUEST_ID_CHARS + 1];
    char name[JOB_NAME_BYTES_MAX];
    char cwd[4096];
    bool is_staged; /* `packed` must be sent before `request` */
    struct stage_packed packed;
    struct msg_submit request; /* borrows from this struct */
    struct view_hidden hidden; /* output that `run` does not show */
    char terminal_size[SUBMISSION_SIZE_BYTES];
    char mask[CALLER_MASK_BYTES], limits[JOB_LIMITS_TEXT_BYTES];
};

/* Reads ctl->words (SPEC.json, the command) and the options into `submission`, which is zeroed.
 * Returns 0, or the exit code of the error that was shown. submission_close follows in any case. */
int submission_make(struct submission *submission, struct ctl *ctl);
void submission_close(struct submission *submission);

#endif
