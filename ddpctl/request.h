/* One request to the server and its answer, on a loop of its own. After a lost connection the
 * request is sent again until `patience_us` is over. So every request must be harmless when
 * repeated. */
#ifndef DDPCTL_REQUEST_H
#define DDPCTL_REQUEST_H

#include <stdint.h>

#include "ddpctl/ctl.h"

struct request {
    struct msg *msg;
    uint64_t patience_us;    /* how long to try to reach a server that was reached before */
    bool first_is_patient;   /* try as long for a server that was never reached */
    uint64_t server_wait_us; /* how long the request allows the server to wait before it answers */
    enum msg_type answer;
    /* `msg` is of type `answer`, borrowed for the call. Returns the exit code. */
    int (*on_answer)(struct ctl *ctl, const struct msg *msg, void *context);
    /* Called for an answer that is an error, instead of showing it; NULL: it is shown. Returns the exit code. */
    int (*on_refused)(struct ctl *ctl, const struct msg_error *error, void *context);
    void *context;
};

/* Returns the result of on_answer, or the exit code of the error that was shown. */
int request_run(struct ctl *ctl, const struct request *request);

#endif
