/* One question to the server, one answer, on a loop of its own. A lost connection is made again and
 * the question put again, as long as patience lasts: every question may be put twice. */
#ifndef DDPCTL_REQUEST_H
#define DDPCTL_REQUEST_H

#include <stdint.h>

#include "ddpctl/ctl.h"

struct request {
    struct msg *msg;
    uint64_t patience_us;  /* with a server that was reached once */
    bool first_is_patient; /* with one that was never reached, too */
    uint64_t hold_us;      /* how long the server may take by the question's own wish */
    enum msg_type answer;
    /* `msg` is of type `answer`, borrowed for the call. Returns the exit code. */
    int (*on_answer)(struct ctl *ctl, const struct msg *msg, void *context);
    void *context;
};

/* What on_answer returned; or the exit code of what went wrong, which was said. */
int request_run(struct ctl *ctl, const struct request *request);

#endif
