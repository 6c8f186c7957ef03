/* Which of several servers on one etcd leads. Pure: leader_step(state, event) -> action.
 *
 * Each server holds a lease of etcd and renews it. The server that created the leader key, under its lease,
 * leads; etcd removes the key when that lease ends. The others stand by and read the key regularly.
 *
 * A leader counts its own lease from when it SENT the last request that etcd confirmed, which is before etcd began to
 * count, and gives up LEADER_MARGIN of it: for clocks that run at different rates, and for the time that it takes to stop.
 * From `until_us` on it must not act: nobody else leads before. Being late costs nothing but the leadership: every write
 * to etcd is a transaction that holds only while the key has the leader's revision (rendezvous/store).
 *
 * The edge (rendezvous/server/election.h) carries out one request at a time and answers it with an event. An answer that
 * was lost is one with ok = false: the request may have been carried out, or may be yet. Then
 *   GRANT   leaves a lease that nobody renews: it ends by itself;
 *   CLAIM   shows in the next READ, which finds our lease on the key;
 *   RENEW   made the lease longer than we know.
 *
 * A server that is behind waits a little before it claims, so that one that has the rows leads sooner.
 *
 * A server that led and lost it ends (LEADER_ENDED): its edge starts the process anew, as a standby. */
#ifndef RENDEZVOUS_CORE_LEADER_H
#define RENDEZVOUS_CORE_LEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/draw.h"

#define LEADER_LEASE_MIN_US 2000000u /* etcd grants no shorter one by default */
#define LEADER_LEASE_DEFAULT_US 3000000u
#define LEADER_MARGIN 5u   /* of the lease, 1/5 is given up */
#define LEADER_RENEWALS 4u /* in one lease */
#define LEADER_READ_US_MIN 100000u
#define LEADER_READ_US_MAX 500000u
#define LEADER_BEHIND_US                                                                           \
    600000u /* longer than between two reads: one that is not behind is first */

enum leader_state {
    LEADER_STANDBY,
    LEADER_LEADING,
    LEADER_ENDED, /* final: led and must not act any more, or resigned */
};

enum leader_request {
    LEADER_WAIT,     /* nothing: step with TICK at `at_us` */
    LEADER_GRANT,    /* a new lease */
    LEADER_ANNOUNCE, /* put this server's own key under the lease: a list of who stands by */
    LEADER_RENEW,    /* the lease */
    LEADER_CLAIM, /* create the leader key under the lease, if there is none; read it in any case */
    LEADER_READ,  /* the leader key */
    LEADER_REVOKE, /* the lease, and with it both keys */
};

enum leader_event_type {
    LEADER_EVENT_TICK,
    LEADER_EVENT_ANSWER, /* of the request at hand */
    LEADER_EVENT_RESIGN, /* the process ends, or must not lead (`text` of the edge says why) */
};

struct leader_event {
    uint64_t now_us; /* CLOCK_BOOTTIME, when the answer came */
    enum leader_event_type type;
    bool is_behind; /* this server would have to read all rows first: others have them */
    /* The rest is of an answer. */
    uint64_t sent_us; /* when the request was sent */
    bool is_ok;
    uint64_t lease_id; /* GRANT */
    uint64_t ttl_us;   /* GRANT, RENEW; of RENEW 0: there is no such lease */
    /* CLAIM, READ: the leader key after it */
    bool has_key;
    uint64_t key_lease_id;
    uint64_t key_revision; /* at which it was created: the fencing token */
};

struct leader_action {
    enum leader_request request;
    uint64_t at_us;      /* WAIT: when to step next */
    uint64_t timeout_us; /* of the request: after this it counts as failed */
};

struct leader {
    enum leader_state state;
    uint64_t lease_wanted_us;
    struct draw draw;
    enum leader_request asked; /* the request at hand; LEADER_WAIT: none */
    uint64_t lease_id;         /* 0: none */
    uint64_t lease_us;         /* what etcd granted */
    uint64_t until_us;         /* the lease, less the margin, by our clock */
    uint64_t renew_at_us, read_at_us, retry_at_us;
    uint64_t revision;   /* LEADING: of the leader key */
    uint64_t free_at_us; /* when the leader key was first found gone; 0: it is there */
    uint64_t current;    /* the lease of who leads, as far as is known; 0: nobody */
    bool is_announced, may_claim, is_resigning;
};

/* `lease_us`: as wanted; etcd may grant a longer one. */
void leader_init(struct leader *leader, uint64_t lease_us, uint64_t seed);
/* One event; the time of events never goes back. While a request is at hand TICK and RESIGN give LEADER_WAIT; its answer
 * gives the next one. */
struct leader_action leader_step(struct leader *leader, const struct leader_event *event);
/* Whether this server may act at this time: send, order, answer. False from `until_us` on, whatever was stepped. */
bool leader_may_act(const struct leader *leader, uint64_t now_us);

#endif
