/* Which of several servers on one etcd leads. Pure: leader_step(state, event) -> action.
 *
 * Each server holds an etcd lease and renews it. The server that created the leader key, under its lease,
 * leads; etcd removes the key when that lease ends. The other servers stand by and read the key regularly.
 *
 * The leader measures its lease from the time at which it SENT the last request that etcd confirmed. That
 * is before etcd started its own count. It also subtracts LEADER_MARGIN of the lease, because clocks run at
 * different rates and stopping takes time. From `until_us` on it must not act; no other server can lead
 * before. Acting late cannot damage the store: every write to etcd is a transaction that succeeds only
 * while the key has the leader's revision (rendezvous/store).
 *
 * The edge (rendezvous/server/election.h) carries out one request at a time and answers it with an event.
 * If the answer is lost, the event has ok = false, and etcd may have carried out the request or may still do
 * so. Then
 *   GRANT   leaves a lease that nobody renews: it expires;
 *   CLAIM   is found by the next READ, which sees our lease on the key;
 *   RENEW   made the lease longer than we know.
 *
 * A new leader reads all rows first, unless it has them already. So a server without them waits before it
 * claims, to let a server that has all rows claim first, or one that has more of them. It waits at most
 * LEADER_BEHIND_US and one lease.
 *
 * A server whose loop makes no progress for a whole lease neither renews nor claims: it serves nobody, so another one
 * is to lead. It goes on to renew if the loop comes back before its lease ends.
 *
 * A server that has lost the leadership ends (LEADER_ENDED): its edge starts the process anew, as a standby. */
#ifndef RENDEZVOUS_CORE_LEADER_H
#define RENDEZVOUS_CORE_LEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/draw.h"

#define LEADER_LEASE_MIN_US 2000000u /* etcd grants no shorter lease by default */
#define LEADER_LEASE_DEFAULT_US 3000000u
#define LEADER_MARGIN 5u   /* 1/5 of the lease is not used */
#define LEADER_RENEWALS 4u /* renewals in one lease */
#define LEADER_READ_US_MIN 100000u
#define LEADER_READ_US_MAX 500000u
#define LEADER_BEHIND_US                                                                           \
    600000u /* longer than between two reads, so that a server with all rows claims first */

enum leader_state {
    LEADER_STANDBY,
    LEADER_LEADING,
    LEADER_ENDED, /* final: led and must not act any more, or resigned */
};

enum leader_request {
    LEADER_WAIT,     /* nothing: step with TICK at `at_us` */
    LEADER_GRANT,    /* a new lease */
    LEADER_ANNOUNCE, /* put this server's own key under the lease: a list of who stands by */
    LEADER_RENEW,    /* renew the lease */
    LEADER_CLAIM,  /* create the leader key under the lease if there is none; read it either way */
    LEADER_READ,   /* read the leader key */
    LEADER_REVOKE, /* revoke the lease, which removes both keys */
};

enum leader_event_type {
    LEADER_EVENT_TICK,
    LEADER_EVENT_ANSWER, /* to the pending request */
    LEADER_EVENT_RESIGN, /* the process ends, or must not lead (the edge's `text` says why) */
};

struct leader_event {
    uint64_t now_us; /* CLOCK_BOOTTIME, when the answer came */
    enum leader_event_type type;
    uint32_t
        missing_pm; /* per mille of the rows, 0 to 1000, that this server would have to read first */
    bool must_wait;     /* must not claim: an administrator has to act first (member.h) */
    uint64_t silent_us; /* for how long the server's loop has made no progress */
    /* The other fields belong to an answer. */
    uint64_t sent_us; /* when the request was sent */
    bool is_ok;
    uint64_t lease_id; /* GRANT */
    uint64_t ttl_us;   /* GRANT, RENEW; 0 after RENEW: there is no such lease */
    /* CLAIM, READ: the leader key afterwards. */
    bool has_key;
    uint64_t key_lease_id;
    uint64_t key_revision; /* at which it was created: the fencing token */
};

struct leader_action {
    enum leader_request request;
    uint64_t at_us;      /* WAIT: when to step next */
    uint64_t timeout_us; /* the request counts as failed after this */
};

struct leader {
    enum leader_state state;
    uint64_t lease_wanted_us;
    struct draw draw;
    enum leader_request asked; /* the pending request; LEADER_WAIT: none */
    uint64_t lease_id;         /* 0: none */
    uint64_t lease_us;         /* what etcd granted */
    uint64_t until_us;         /* when the lease less the margin ends, by our clock */
    uint64_t renew_at_us, read_at_us, retry_at_us;
    uint64_t revision;   /* LEADER_LEADING: of the leader key */
    uint64_t free_at_us; /* when the leader key was first found gone; 0: it is there */
    uint64_t current;    /* the current leader's lease, as far as is known; 0: no leader */
    bool is_announced, may_claim, is_resigning;
};

/* `lease_us`: the lease to ask for; etcd may grant a longer one. */
void leader_init(struct leader *leader, uint64_t lease_us, uint64_t seed);
/* Takes one event. The time of events never goes back. While a request is pending, TICK and RESIGN
 * return LEADER_WAIT; the answer to the request returns the next action. */
struct leader_action leader_step(struct leader *leader, const struct leader_event *event);
/* Whether a loop without progress for `silent_us` counts as stuck. */
bool leader_is_stuck(const struct leader *leader, uint64_t silent_us);
/* Whether this server may act at this time: send, order, answer. False from `until_us` on,
 * whichever events came. */
bool leader_may_act(const struct leader *leader, uint64_t now_us);

#endif
