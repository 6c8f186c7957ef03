/* A connection to the server that comes back: hello, messages, and when it is lost, another try
 * until patience ends. An edge on a libuv loop; it does not know what was asked: its owner asks
 * again in on_open. */
#ifndef DDPCTL_CLIENT_H
#define DDPCTL_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/io/conn.h"

struct client;

struct client_handlers {
    void (*on_open)(struct client *client); /* connected, hello is sent: ask, or ask again */
    void (*on_message)(struct client *client, const struct msg *msg);
    void (*on_waiting)(struct client *client,
                       const struct err *err); /* lost for 2 s, still trying; once a loss */
    void (*on_failed)(struct client *client,
                      const struct err *err); /* patience has ended; nothing follows */
};

struct client {
    struct conn conn;
    uv_timer_t timer;
    const char *address; /* borrowed */
    const struct client_handlers *handlers;
    void *owner;
    uint64_t patience_us;  /* for a server that was reached once; 0: none */
    bool first_is_patient; /* also for one that never was */
    uint64_t lost_at_us;   /* 0: not lost */
    uint64_t delay_ms;
    bool was_open, conn_live, open, closing, told;
    struct err why;
};

/* Starts to connect; all that follows comes through the handlers, from the loop. */
void client_open(struct client *client, uv_loop_t *loop, const char *address, uint64_t patience_us,
                 const struct client_handlers *handlers, void *owner);
/* Queue a message; nothing while not open. A message over its limits: as conn_send. */
enum status client_send(struct client *client, struct msg *msg, struct err *err);
/* An answer must come within `timeout_us`, or the connection is taken for lost; 0: none is awaited.
 */
void client_expect(struct client *client, uint64_t timeout_us);
/* Again is nothing. The struct is free once the loop has no handles left. */
void client_close(struct client *client);

#endif
