/* The edge of rendezvous/core/leader.h: this server's part in the election, on a thread of its own.
 * So neither a long step of the server nor a slow commit delays the renewal of its lease, and an
 * etcd that does not answer never blocks the loop. But a loop that stands still, in a call that does not return, must
 * not lead: it notes that it is alive, and without that for a lease the thread does not renew.
 *
 * In etcd, with PREFIX of the URL:
 *   PREFIXleader       ADDRESS\nHOST of the server that leads, under its lease; its create revision is the fencing token
 *   PREFIXservers/ID   ADDRESS\nHOST of each server, under its lease (ID: the lease, in hex) */
#ifndef RENDEZVOUS_SERVER_ELECTION_H
#define RENDEZVOUS_SERVER_ELECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/limits.h"
#include "common/status.h"
#include "rendezvous/store/etcd_client.h"

#define ELECTION_HOST_BYTES_MAX 256u

struct election;

struct election_options {
    const struct etcd_options *etcd; /* this and the texts are borrowed only for election_open */
    const char *prefix;              /* as etcd_url_parse gives it */
    const char *address;             /* how nodes and clients reach this server */
    uint64_t lease_us;
    void *owner;
    /* Called on the loop's thread: election_leads or election_view may have changed. */
    void (*on_changed)(void *owner);
    /* Called on the election's thread; must be fast. Returns leader_event.missing_pm. */
    uint32_t (*missing_pm)(void *owner);
    /* Likewise. Returns leader_event.must_wait. */
    bool (*must_wait)(void *owner);
    /* Called on the election's thread: this server led and must not act any more. Must not
     * return. */
    void (*on_lost)(void *owner, const char *why);
};

struct election_server {
    char address[SERVER_ADDRESS_BYTES_MAX];
    char host[ELECTION_HOST_BYTES_MAX];
    bool leads;
};

/* What was last read from etcd. */
struct election_view {
    uint32_t count; /* the one that leads first */
    struct election_server servers[SERVERS_MAX];
    char problem[256]; /* why the last request to etcd failed; empty: it did not */
};

/* Errors: STATUS_MEMORY, STATUS_LIBRARY, STATUS_SYSTEM. The async handle does not keep the loop running. */
enum status election_open(struct election **election, uv_loop_t *loop,
                          const struct election_options *options, struct err *err);
/* Whether this server was elected, even if it may not act any more. */
bool election_leads(const struct election *election);
/* Whether this server may act now. Once it was elected, false is final. May be called from any
 * thread; fast. */
bool election_may_act(const struct election *election);
/* Until when it may act, by clock_boot_us; renewals extend it. 0: it may not act. */
uint64_t election_acts_until_us(const struct election *election);
/* Notes that the loop's thread makes progress. For long work in one turn of the loop. */
void election_alive(struct election *election);
/* Returns only if this server may act now; otherwise calls on_lost. */
void election_check(struct election *election);
/* The leader key, once elected. Every write to the store is conditional on the key's create
 * revision. */
const char *election_key(const struct election *election);
int64_t election_token(const struct election *election);
void election_view(struct election *election, struct election_view *view);
/* Revokes the lease, so that another server can lead at once; waits a second at most. The loop must
 * run once more. */
void election_close(struct election **election);

#endif
