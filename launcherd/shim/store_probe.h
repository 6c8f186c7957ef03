/* Whether the master's port answers. A firewall that drops what it gets says nothing, and the ranks would wait for half an hour.
 * The store listens there before any rank is spawned, so the connection comes about at once where nothing is in the way. Ranks
 * do not wait for it. Part of the edge of the shim. */
#ifndef LAUNCHERD_SHIM_STORE_PROBE_H
#define LAUNCHERD_SHIM_STORE_PROBE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/limits.h"

#define STORE_PROBE_MS 10000u
#define STORE_PROBE_AGAIN_MS 500u

struct store_probe {
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_connect_t connect;
    struct sockaddr_storage to;
    uint64_t until_ms; /* loop time */
    bool is_open, has_socket, is_connected;
    bool is_guess; /* `address` is */
    char node[NODE_NAME_BYTES_MAX], master[NODE_NAME_BYTES_MAX];
    char address[ADDRESS_BYTES_MAX]; /* the node's own, which the store lets in */
    char where[ADDRESS_BYTES_MAX + 8];
    char text[REASON_BYTES_MAX];
    void *owner;
    /* `text`: why ranks here do not reach the store. Called at most once; it may close the probe. */
    void (*on_failed)(void *owner, const char *text);
};

/* What the probe is of: this node, its address, the node of the store. */
struct store_probe_way {
    const char *node, *address, *master, *master_addr;
    uint32_t port;
    bool is_guess; /* the store may have been told another address of this node */
};

void store_probe_begin(struct store_probe *probe, uv_loop_t *loop,
                       const struct store_probe_way *way, uint32_t timeout_ms);
/* A second call, or one without a probe, does nothing. The loop must run once more. */
void store_probe_close(struct store_probe *probe);

#endif
