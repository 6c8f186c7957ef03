/* The edge of rendezvous/core/leader.h: this server's part in the election, on a thread of its own. So neither a long step
 * of the server nor a commit that waits delays the renewal of its lease; and etcd that does not answer never holds up the loop.
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
    const struct etcd_options *etcd; /* this and the texts are borrowed for election_open */
    const char *prefix;              /* as etcd_url_parse gives it */
    const char *address;             /* how nodes and clients reach this server */
    uint64_t lease_us;
    void *owner;
    /* From the loop: election_leads or election_view may give another answer. */
    void (*on_changed)(void *owner);
    /* From the thread, cheap: whether this server would have to read all rows before it leads. */
    bool (*is_behind)(void *owner);
    /* From the thread: this server led and must not act any more. Does not return. */
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
    char problem[256]; /* why etcd could not be asked last; empty: it was */
};

/* Errors: STATUS_MEMORY, STATUS_LIBRARY, STATUS_SYSTEM. The async handle does not keep the loop running. */
enum status election_open(struct election **election, uv_loop_t *loop,
                          const struct election_options *options, struct err *err);
/* This server was elected and leads, or led. */
bool election_leads(const struct election *election);
/* Whether this server may act now. False: it never will again. Any thread; cheap. */
bool election_may_act(const struct election *election);
/* By clock_boot_us; renewals move it on. 0: it may not act. */
uint64_t election_acts_until_us(const struct election *election);
/* Does not return unless this server may act now: on_lost. */
void election_check(const struct election *election);
/* Of the leader key, once elected: every write to the store holds only while it has this create revision. */
const char *election_key(const struct election *election);
int64_t election_token(const struct election *election);
void election_view(struct election *election, struct election_view *view);
/* Gives up the lease, so that another server leads at once; waits for that for a second at most. The loop must run once more. */
void election_close(struct election **election);

#endif
