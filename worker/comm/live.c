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

/* Stores the first loss and lets it be sent. */
static void lose(struct comm_live *live, uint32_t rank, enum comm_why why, uint64_t seq,
                 struct comm_live_actions *actions)
{
    if (live->lost_rank != COMM_RANK_NONE)
        return; /* a consequence of the first loss */
    live->lost_rank = rank;
    live->lost_why = why;
    live->lost_seq = seq;
    actions->sends = true;
    actions->note =
        (struct comm_note){.type = COMM_NOTE_LOST, .why = why, .rank = rank, .seq = seq};
}

static void on_tick(struct comm_live *live, uint64_t now_us, struct comm_live_actions *actions)
{
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
            lose(live, i, COMM_WHY_SILENT, 0, actions);
    }
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
        } else {
            live->behind_rank = note->rank;
            live->behind_seq = note->seq;
        }
        break;
    case COMM_NOTE_LEFT:
        on_left(live, event, actions);
        break;
    case COMM_NOTE_LOST:
        if (note->rank < live->world)
            lose(live, note->rank, note->why, note->seq, actions);
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
        on_tick(live, event->now_us, actions);
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
            lose(live, event->from, COMM_WHY_CLOSED, 0, actions);
        break;
    case COMM_LIVE_REPORT:
        if (event->note.rank < live->world)
            lose(live, event->note.rank, event->note.why, event->note.seq, actions);
        break;
    }
    if (live->rank != 0 && event->type != COMM_LIVE_REPORT)
        actions->sends = false; /* it came from rank 0: nothing to forward */
    assert(!actions->sends || actions->note.type == COMM_NOTE_LOST ||
           actions->note.type == COMM_NOTE_LEFT);
    assert(live->lost_rank == COMM_RANK_NONE || live->lost_rank < live->world);
}

struct comm_note comm_live_beat(const struct comm_live *live, uint64_t own_seq)
{
    struct comm_note beat = {.type = COMM_NOTE_BEAT, .rank = live->rank, .seq = own_seq};

    for (uint32_t i = 1; live->rank == 0 && i < live->world; i++) {
        if (live->peers[i].seq < beat.seq) {
            beat.rank = i;
            beat.seq = live->peers[i].seq;
        }
    }
    return beat;
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
