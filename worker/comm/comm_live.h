/* Who is alive. A pure machine, one in each rank's watcher thread.
 *
 * Ranks form a star around rank 0: it hears from all, the others hear from it. The first loss is
 * the verdict and stays: what breaks afterwards is its consequence. Rank 0 tells the verdict to
 * all, so that every rank names the same culprit. */
#ifndef WORKER_COMM_COMM_LIVE_H
#define WORKER_COMM_COMM_LIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/comm/comm_wire.h"

#define COMM_BEAT_US UINT64_C(1000000)
#define COMM_SILENT_US UINT64_C(5000000) /* generous: machines are oversubscribed */
/* A watcher that wakes this much too late was stopped itself: it forgives everybody's silence. */
#define COMM_OVERSLEPT_US UINT64_C(2500000)

enum comm_peer_state {
    COMM_PEER_HERE,
    COMM_PEER_LEFT /* on purpose */
};

struct comm_peer {
    enum comm_peer_state state;
    uint64_t heard_us;   /* when it last said anything */
    uint64_t seq;        /* collectives it has begun; once LEFT, those it has completed */
    uint32_t left_order; /* the how-manieth to leave, from 1 */
};

struct comm_live {
    uint32_t rank, world;
    struct comm_peer
        *peers; /* [world], the owner's memory; on other ranks than 0 only [0] is heard */
    uint64_t checked_us, beat_us;
    uint32_t left_count; /* peers that have left */
    uint32_t lost_rank;  /* COMM_RANK_NONE while all is well */
    enum comm_why lost_why;
    uint64_t lost_seq;    /* COMM_WHY_STALLED: the collectives that it had begun */
    uint32_t behind_rank; /* the one furthest behind, as rank 0 last saw it */
    uint64_t behind_seq;
};

enum comm_live_event_type {
    COMM_LIVE_TICK,   /* time has passed */
    COMM_LIVE_NOTE,   /* `note` came from `from` */
    COMM_LIVE_CLOSED, /* the connection to `from` is closed */
    COMM_LIVE_REPORT  /* this rank itself saw that `note.rank` is lost */
};

struct comm_live_event {
    enum comm_live_event_type type;
    uint64_t now_us;
    uint32_t from;
    struct comm_note note;
};

struct comm_live_actions {
    bool tell; /* send `told` to every peer on the star but `tell_not` */
    struct comm_note told;
    uint32_t tell_not;
    bool beat; /* then send comm_live_beat() */
};

/* `peers` is [world] and stays the caller's. */
void comm_live_init(struct comm_live *live, struct comm_peer *peers, uint32_t rank, uint32_t world,
                    uint64_t now_us);
void comm_live_step(struct comm_live *live, const struct comm_live_event *event,
                    struct comm_live_actions *actions);
/* `own_seq`: the collectives that this rank has begun. */
struct comm_note comm_live_beat(const struct comm_live *live, uint64_t own_seq);
/* Of the ranks that have left and cannot take part in collective `seq`, the one that left first;
 * COMM_RANK_NONE: nobody. */
uint32_t comm_live_missing(const struct comm_live *live, uint64_t seq);

#endif
