/* One command that is typed on each node, as torchrun wants it: `run --nnodes 2 --rdzv-id 7
 * --rdzv-endpoint HOST:PORT train.py`. It is one job. The first command makes it, the others show it
 * too. The request's id, by which the server knows a request that comes twice, is made from the
 * command here. When the job has ended, the same command is a new one. */
#ifndef DDPCTL_JOINT_H
#define DDPCTL_JOINT_H

#include "ddpctl/submit.h"

enum joint {
    JOINT_NO,    /* an ordinary command: submit it */
    JOINT_MADE,  /* the job is made by this command */
    JOINT_JOINED /* another one has made it */
};

/* The id of the nth job of this command: the same wherever it is typed, whatever the directory. */
void joint_id(const struct submission *submission, const struct options *options, uint32_t nth,
              char id[REQUEST_ID_CHARS + 1]);
/* Submits the job if the command is one of these; its request id is then the job's. Returns an exit
 * code, after an error was shown. */
int joint_submit(struct ctl *ctl, struct submission *submission, enum joint *joint);

#endif
