/* The state of the simulation of several servers on one etcd. Times are in microseconds of the
 * simulated clock. */
#ifndef TESTS_SIM_ELECTION_ELECTION_H
#define TESTS_SIM_ELECTION_ELECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/draw.h"
#include "rendezvous/core/leader.h"

#define SERVERS 3u
#define EVENTS_MAX 4096u
#define REQUESTS_MAX 4000u
#define LEASES_MAX 4000u
#define SECOND 1000000u
#define FAULTS_END_US (120u * SECOND)
#define CALM_US (30u * SECOND)
#define LEASE_US (2u * SECOND)
#define FACTOR_ONE 1000          /* a clock rate of 1 */
#define READING_US (8u * SECOND) /* the longest time to read all rows */
#define BEHIND_AT_US                                                                               \
    (14u * SECOND) /* after the last fault: both standbys begin to read, one after the other */
#define LEASE_LATE_US (SECOND / 2) /* etcd checks leases twice a second, so it ends them late */
#define STUCK_US (20u * SECOND)
/* The longest time for which a server with a loop that is stuck may have the key: its last renewal is sent within a
 * lease, by its clock, and may be under way for 3 s. */
#define STUCK_LEADS_US (2 * LEASE_US + LEASE_LATE_US + 3 * SECOND + SECOND / 2)
#define CLAIM_US (SECOND + SECOND / 5) /* two reads of the key, a claim, and the first answer */

enum kind { STEP, ARRIVE, ANSWER, ACT, WRITE_ARRIVES, WRITE_ANSWERED, FAULT, BEHIND };

struct event {
    uint64_t at_us;
    enum kind kind;
    uint32_t server, incarnation;
    enum leader_request request;
    struct leader_event answer; /* ANSWER */
    uint64_t lease_id, revision;
    uint32_t job; /* WRITE_... */
    bool is_ok;
    uint64_t serial; /* of the request that this answers */
};

struct server {
    struct leader leader;
    uint32_t incarnation;
    bool is_alive;
    uint64_t stopped_until_us, cut_until_us;
    uint64_t stuck_since_us,
        stuck_until_us; /* its loop stands still in a call; the election goes on */
    int64_t clock_us;   /* the server's clock shows this plus the time times `rate` */
    uint32_t rate;      /* thousandths */
    uint64_t serial;    /* of its pending request */
    uint64_t steps, step_at_us;
    uint64_t rows_begin_us, rows_at_us; /* when it begins to read the rows, and when it has them */
    bool is_writing;
};

struct lease {
    uint64_t ttl_us, end_us; /* 0: gone */
};

struct etcd {
    uint64_t revision, key_revision, key_lease; /* key_revision 0: there is no leader key */
    uint64_t away_until_us;
    struct lease leases[LEASES_MAX];
    uint32_t lease_count;
    uint32_t stored[REQUESTS_MAX]; /* how often each request is there */
};

struct world {
    struct draw draw;
    uint64_t now_us;
    struct event events[EVENTS_MAX]; /* a heap by at_us */
    uint32_t event_count;
    struct server servers[SERVERS];
    struct etcd etcd;
    bool acked[REQUESTS_MAX];
    uint32_t job; /* the request that is being submitted */
    uint64_t last_ack_us;
    uint64_t killed_revision; /* of the leader killed while both standbys read; 0: not yet */
    bool has_next;            /* another leader has acted since */
    uint32_t leaders;
    bool is_verbose;
    const char *rule;
    char text[160];
};

#endif
