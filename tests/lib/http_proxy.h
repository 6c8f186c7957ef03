/* A proxy between a client and an HTTP server that fails requests in chosen ways. It has its own
 * threads. */
#ifndef TESTS_LIB_HTTP_PROXY_H
#define TESTS_LIB_HTTP_PROXY_H

#include <stdbool.h>
#include <stdint.h>

enum proxy_fault {
    PROXY_PASSES,
    PROXY_CUTS_BEFORE, /* the server never gets the request; the connection ends */
    PROXY_CUTS_AFTER,  /* the server carries it out; the connection ends without an answer */
    PROXY_CUTS_WITHIN, /* the same, with the first half of the answer */
    PROXY_SILENT, /* the server carries it out; the client gets nothing, and the connection stays */
    PROXY_LATE,   /* the server gets it only after the client has repeated it */
    PROXY_BUSY,   /* 503 */
    PROXY_GARBAGE, /* 200 with a body that is not JSON; the server carries it out */
    PROXY_FAULTS,
};

struct proxy;

/* Chooses the fault for the request of that number, counted from 1. Called on another thread, one
 * call at a time. */
typedef enum proxy_fault proxy_choose(uint64_t number, void *context);

/* From a port of the kernel's choice to `port` of this machine. */
struct proxy *proxy_open(uint16_t port, proxy_choose *choose, void *context);
uint16_t proxy_port(const struct proxy *proxy);
uint64_t proxy_requests(struct proxy *proxy); /* so far */
/* Waits until late requests have been sent. */
void proxy_settle(struct proxy *proxy);
void proxy_close(struct proxy *proxy);

#endif
