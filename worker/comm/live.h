/* Which ranks are alive: a pure state machine (no clock, socket or heap). Each rank runs one in its
 * watcher thread (watch.h).
 *
 * Ranks form a star around rank 0: each of them exchanges messages with rank 0 only. A rank keeps
 * the first loss that it detects or receives, since later failures are consequences of the first.
 * Rank 0 sends it to all, so that every rank names the same lost rank.
 *
 * A rank may be busy: in a phase without steps, as when it writes a checkpoint. The heartbeats tell
 * that, and the limit of a collective does not count while the rank that is missing is busy. */
#ifndef WORKER_COMM_LIVE_H
#define WORKER_COMM_LIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/comm/wire.h"

#define COMM_BEAT_US UINT64_C(1000000)
#define COMM_SILENT_US UINT64_C(5000000) /* long, since machines may be oversubscribed */
/* A watcher that did not run for this long was stopped itself, so it does not count the silence of
 * others. */
#define COMM_OVERSLEPT_US UINT64_C(2500000)

enum comm_peer_state {
    COMM_PEER_HERE,
    COMM_PEER_LEFT /* on purpose */
};

struct comm_peer {
    enum comm_peer_state state;
    uint64_t heard_us; /* time of its last message */
    uint64_t seq;      /* collectives that it has begun; once LEFT, those it has completed */
    bool busy;
    uint32_t left_order; /* 1 for the first rank to leave, 2 for the second, ... */
};

/* What this rank does itself. */
struct comm_own {
    uint64_t seq; /* collectives begun */
    bool busy;
};

struct comm_live {
    uint32_t rank, world;
    struct comm_peer *peers; /* [world], borrowed; only rank 0 gets messages from others than [0] */
    uint64_t checked_us, beat_us;
    uint32_t left_count; /* peers that have left */
    uint32_t lost_rank;  /* COMM_RANK_NONE: no rank was lost */
    enum comm_why lost_why;
    uint64_t lost_seq;    /* COMM_WHY_STALLED: the collectives that it had begun */
    bool lost_busy;       /* and whether it was busy */
    uint32_t behind_rank; /* has begun the fewest collectives, by rank 0's last message */
    uint64_t behind_seq;  /* how many those are */
    bool behind_busy;
    uint64_t busy_us; /* when a rank that this one waits for was last known to be busy; 0: never */
};

enum comm_live_event_type {
    COMM_LIVE_TICK,   /* time has passed */
    COMM_LIVE_NOTE,   /* message `note` arrived from rank `from` */
    COMM_LIVE_CLOSED, /* the connection to rank `from` is closed */
    COMM_LIVE_REPORT  /* this rank found that `note.rank` has stalled */
};

struct comm_live_event {
    enum comm_live_event_type type;
    uint64_t now_us;
    uint32_t from;
    struct comm_note note;
    struct comm_own own; /* COMM_LIVE_TICK */
};

struct comm_live_actions {
    bool sends; /* send `note` to every linked peer except `except` */
    struct comm_note note;
    uint32_t except; /* COMM_RANK_NONE: no exception */
    bool beats;      /* then send comm_live_beat() to every linked peer */
};

/* peers: [world], owned by the caller, used until the last step. */
void comm_live_init(struct comm_live *live, struct comm_peer *peers, uint32_t rank, uint32_t world,
                    uint64_t now_us);
void comm_live_step(struct comm_live *live, const struct comm_live_event *event,
                    struct comm_live_actions *actions);
/* The heartbeat to send. */
struct comm_note comm_live_beat(const struct comm_live *live, struct comm_own own);
/* Which rank has begun the fewest collectives, as far as this one knows: a note as of a heartbeat. */
struct comm_note comm_live_behind(const struct comm_live *live, struct comm_own own);
/* When a collective in which nothing moves since `moved_us` has stalled: `limit_us` after the missing
 * rank was last busy, of which at most `busy_limit_us` are granted. */
uint64_t comm_live_stalls_at(const struct comm_live *live, uint64_t moved_us, uint64_t limit_us,
                             uint64_t busy_limit_us);
/* The first rank to leave among those that left before completing collective `seq`; COMM_RANK_NONE
 * if there is none. */
uint32_t comm_live_missing(const struct comm_live *live, uint64_t seq);

#endif
