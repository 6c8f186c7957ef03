/* See live.h. Each event is handled by one function; the first loss wins. */
#include "worker/comm/live.h"

#include <assert.h>
#include <string.h>

void comm_live_init(struct comm_live *live, struct comm_peer *peers, uint32_t rank, uint32_t world,
                    uint64_t now_us)
{
    assert(rank < world);
    memset(live, 0, sizeof *live);
    live->rank = rank;
    live->world = world;
    live->peers = peers;
    live->checked_us = now_us;
    live->beat_us = now_us + COMM_BEAT_US;
    live->lost_rank = COMM_RANK_NONE;
    live->behind_rank = COMM_RANK_NONE;
    for (uint32_t i = 0; i < world; i++)
        peers[i] = (struct comm_peer){.state = COMM_PEER_HERE, .heard_us = now_us};
}

/* Whether this rank has a connection of the star to `rank`. */
static bool is_linked(const struct comm_live *live, uint32_t rank)
{
    return rank != live->rank && (live->rank == 0 || rank == 0);
}

/* Stores the first loss, which `note` describes, and lets it be sent. */
static void lose_as(struct comm_live *live, const struct comm_note *note,
                    struct comm_live_actions *actions)
{
    if (live->lost_rank != COMM_RANK_NONE)
        return; /* a consequence of the first loss */
    live->lost_rank = note->rank;
    live->lost_why = note->why;
    live->lost_seq = note->seq;
    live->lost_busy = note->busy;
    actions->sends = true;
    actions->note = *note;
    actions->note.type = COMM_NOTE_LOST;
}

static void lose(struct comm_live *live, uint32_t rank, enum comm_why why,
                 struct comm_live_actions *actions)
{
    const struct comm_note note = {.why = why, .rank = rank};

    lose_as(live, &note, actions);
}

/* The rank that this one waits for may be busy. */
static void look_for_busy(struct comm_live *live, struct comm_own own, uint64_t now_us)
{
    const struct comm_note behind = comm_live_behind(live, own);

    if (behind.busy && behind.seq < own.seq)
        live->busy_us = now_us;
}

static void on_tick(struct comm_live *live, const struct comm_live_event *event,
                    struct comm_live_actions *actions)
{
    const uint64_t now_us = event->now_us;
    bool overslept = now_us - live->checked_us > COMM_OVERSLEPT_US;

    assert(now_us >= live->checked_us); /* the clock is monotonic */
    live->checked_us = now_us;
    for (uint32_t i = 0; i < live->world; i++) {
        struct comm_peer *peer = &live->peers[i];

        if (!is_linked(live, i) || peer->state == COMM_PEER_LEFT)
            continue;
        if (overslept)
            peer->heard_us = now_us;
        else if (now_us > peer->heard_us && now_us - peer->heard_us > COMM_SILENT_US)
            lose(live, i, COMM_WHY_SILENT, actions);
    }
    look_for_busy(live, event->own, now_us);
    if (now_us >= live->beat_us) {
        live->beat_us = now_us + COMM_BEAT_US;
        actions->beats = true;
    }
}

static void on_left(struct comm_live *live, const struct comm_live_event *event,
                    struct comm_live_actions *actions)
{
    /* Rank 0 forwards what others send; from anyone else it is about the sender. */
    uint32_t rank = live->rank == 0 ? event->from : event->note.rank;

    if (rank >= live->world || rank == live->rank || live->peers[rank].state == COMM_PEER_LEFT)
        return;
    assert(live->left_count < live->world);
    live->peers[rank].left_order = ++live->left_count;
    live->peers[rank].state = COMM_PEER_LEFT;
    live->peers[rank].seq = event->note.seq;
    if (live->rank == 0) {
        actions->sends = true;
        actions->note =
            (struct comm_note){.type = COMM_NOTE_LEFT, .rank = rank, .seq = event->note.seq};
    }
}

static void on_note(struct comm_live *live, const struct comm_live_event *event,
                    struct comm_live_actions *actions)
{
    const struct comm_note *note = &event->note;

    live->peers[event->from].heard_us = event->now_us;
    switch (note->type) {
    case COMM_NOTE_BEAT:
        if (live->rank == 0) {
            live->peers[event->from].seq = note->seq;
            live->peers[event->from].busy = note->busy;
        } else {
            live->behind_rank = note->rank;
            live->behind_seq = note->seq;
            live->behind_busy = note->busy;
        }
        break;
    case COMM_NOTE_LEFT:
        on_left(live, event, actions);
        break;
    case COMM_NOTE_LOST:
        if (note->rank < live->world)
            lose_as(live, note, actions);
        break;
    case COMM_NOTE_ROSTER:
    case COMM_NOTE_REFUSED:
    case COMM_NOTE_ABSENT:
    case COMM_NOTE_TYPES:
        break; /* belongs to the bring-up; counts as a sign of life */
    }
}

void comm_live_step(struct comm_live *live, const struct comm_live_event *event,
                    struct comm_live_actions *actions)
{
    assert(event->from < live->world || event->type == COMM_LIVE_TICK ||
           event->type == COMM_LIVE_REPORT);
    memset(actions, 0, sizeof *actions);
    actions->except = COMM_RANK_NONE;
    switch (event->type) {
    case COMM_LIVE_TICK:
        on_tick(live, event, actions);
        break;
    case COMM_LIVE_NOTE:
        assert(is_linked(live, event->from));
        actions->except = event->from;
        on_note(live, event, actions);
        break;
    case COMM_LIVE_CLOSED:
        assert(is_linked(live, event->from));
        actions->except = event->from;
        if (live->peers[event->from].state == COMM_PEER_HERE)
            lose(live, event->from, COMM_WHY_CLOSED, actions);
        break;
    case COMM_LIVE_REPORT:
        if (event->note.rank < live->world)
            lose_as(live, &event->note, actions);
        break;
    }
    if (live->rank != 0 && event->type != COMM_LIVE_REPORT)
        actions->sends = false; /* it came from rank 0: nothing to forward */
    assert(!actions->sends || actions->note.type == COMM_NOTE_LOST ||
           actions->note.type == COMM_NOTE_LEFT);
    assert(live->lost_rank == COMM_RANK_NONE || live->lost_rank < live->world);
}

struct comm_note comm_live_beat(const struct comm_live *live, struct comm_own own)
{
    struct comm_note beat = {
        .type = COMM_NOTE_BEAT, .rank = live->rank, .seq = own.seq, .busy = own.busy};

    for (uint32_t i = 1; live->rank == 0 && i < live->world; i++) {
        const struct comm_peer *peer = &live->peers[i];

        /* of those that have begun equally few, a busy one explains nothing if another is not */
        if (peer->seq < beat.seq || (peer->seq == beat.seq && beat.busy && !peer->busy)) {
            beat.rank = i;
            beat.seq = peer->seq;
            beat.busy = peer->busy;
        }
    }
    return beat;
}

struct comm_note comm_live_behind(const struct comm_live *live, struct comm_own own)
{
    if (live->rank == 0 || live->behind_rank == COMM_RANK_NONE)
        return comm_live_beat(live, own);
    return (struct comm_note){.type = COMM_NOTE_BEAT,
                              .rank = live->behind_rank,
                              .seq = live->behind_seq,
                              .busy = live->behind_busy};
}

uint64_t comm_live_stalls_at(const struct comm_live *live, uint64_t moved_us, uint64_t limit_us,
                             uint64_t busy_limit_us)
{
    uint64_t from_us = live->busy_us > moved_us ? live->busy_us : moved_us;

    if (from_us - moved_us > busy_limit_us)
        from_us = moved_us + busy_limit_us;
    return from_us + limit_us;
}

/* Ranks that left are ordered by when they left: the first one is the cause. */
uint32_t comm_live_missing(const struct comm_live *live, uint64_t seq)
{
    uint32_t first = COMM_RANK_NONE;

    for (uint32_t i = 0; i < live->world; i++)
        if (live->peers[i].state == COMM_PEER_LEFT && live->peers[i].seq < seq &&
            (first == COMM_RANK_NONE || live->peers[i].left_order < live->peers[first].left_order))
            first = i;
    return first;
}
