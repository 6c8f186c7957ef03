/* The core's state, shared by its files. Private to launcherd/c10d/. */
#ifndef LAUNCHERD_C10D_STATE_H
#define LAUNCHERD_C10D_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "launcherd/c10d/c10d.h"
#include "launcherd/c10d/keys.h"
#include "launcherd/c10d/memory.h"
#include "launcherd/c10d/scan.h"
#include "launcherd/c10d/waits.h"

struct client {
    struct waiting waiting; /* must be first: waits_woken gets it and finds the client */
    uint32_t number;
    bool is_validated, is_paused;
    bool is_http;   /* it speaks Horovod's HTTP (http.h) */
    bool is_ending; /* its last request was answered: it is closed when the answer is written */
    enum c10d_waits waits;
    uint32_t pid; /* 0: it sent no PING */
    uint64_t connected_us, waits_since_us;
    char *in; /* bytes that have come and are not carried out yet */
    size_t in_bytes, in_capacity;
    struct scan scan; /* of the first request in `in` */
};

struct c10d {
    struct c10d_limits limits;
    struct memory memory;
    struct keys keys;
    struct waits waits, barriers;
    struct client **clients; /* [limits.clients_max] */
    uint32_t client_count;

    /* The current step: its client, time, actions, and the reply to the client. */
    struct client *current;
    uint64_t now_us;
    struct c10d_action
        *actions; /* [action_capacity]: enough for one action and one reply for each client */
    size_t action_count, action_capacity;
    char *reply;
    size_t reply_bytes, reply_capacity;
};

enum request_result { REQUEST_DONE, REQUEST_BAD };

/* Carries out one complete request of core->current. REQUEST_BAD: *reason says why the client must
 * be closed. */
enum request_result request_carry_out(struct c10d *core, unsigned command, struct fields fields,
                                      enum c10d_reason *reason);

/* Adds bytes to the reply. False: *reason says why the client must be closed. */
bool request_reply(struct c10d *core, struct text text, enum c10d_reason *reason);

#endif
