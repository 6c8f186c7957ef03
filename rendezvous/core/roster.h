/* The nodes: who is here, what they list, when silence means lost. */
#ifndef RENDEZVOUS_CORE_ROSTER_H
#define RENDEZVOUS_CORE_ROSTER_H

#include "rendezvous/core/job.h"

/* What a node reports of one of its slots. */
struct node_slot {
    enum slot_state state; /* FREE: may be given out; never BUSY. Set in slots.c alone */
    bool was_logged;       /* as closed; its opening will be, too */
    uint64_t incident;
    uint64_t resume_incident; /* an operator has resumed this one; repeated until the node acts */
    int64_t since_ms;         /* wall clock */
};

#define SHIMS_FEW 8u /* a node with more of them lists them in a table of their own */

/* Nodes lie close together. What most of them never need is in other tables, of which untouched pages
 * cost no memory: the lists of nodes with many shims, closed slots, and the reasons why. */
struct node {
    bool used;
    char name[NODE_NAME_BYTES_MAX];
    char boot_id[64];
    char address[ADDRESS_BYTES_MAX];
    char version[32];
    uint64_t instance;
    uint64_t conn;        /* 0: none */
    uint64_t newest_conn; /* of this instance: the last that it has said hello on */
    enum node_state state;
    bool has_beat;
    bool has_lost_parts; /* it was lost, and not all generations on it have been failed for it */
    uint32_t fenced;     /* jobs that wait for its word, see fence.h */
    uint64_t silent_us;  /* when it was lost: for how long it had been silent */
    uint64_t beat_at_us;
    uint64_t
        closed_at_us; /* when its connection closed; 0: it has one, or this server does not know */
    uint64_t lost_at_us; /* when it counts as lost, if nothing comes */
    uint32_t pid, slots, gpus;
    uint32_t shim_count;          /* in its newest list */
    struct part_beat_shim *shims; /* few or many; [shim_count] */
    struct part_beat_shim few[SHIMS_FEW];
    struct part_beat_shim *many;         /* [SHIMS_PER_NODE_MAX] */
    struct node_slot *slot_states;       /* [SLOTS_PER_NODE_MAX] */
    char (*reasons)[REASON_BYTES_MAX];   /* [SLOTS_PER_NODE_MAX], of closed slots */
    uint64_t closed_mask, checking_mask; /* slots that are not FREE; those that are CHECKING */
    bool is_drained;                     /* as a whole, by an operator */
    bool is_leaving;                     /* its launcherd ends once no job is on it */
    bool drains_on_term;                 /* a restart of its launcherd stops its jobs */
    uint32_t protocol;                   /* what its launcherd speaks */
    int64_t leaving_ms;                  /* is_leaving: since when, wall clock */
    uint64_t drain_mask;                 /* slots, by an operator */
};

/* What is looked at of every node at once: all of them are a few cache lines. */
struct node_view {
    uint64_t offer; /* slots that are open and that no shim is on, while the node is up */
    uint64_t able;  /* slots that a job may have one day: of nodes not lost, not closed for long */
    uint64_t conn;  /* 0: none */
    uint32_t slots; /* 0: no hello yet */
};

/* The jobs with a part on a node that has not counted as ended by its loss: one for each slot at
 * most. */
struct node_part {
    uint32_t job; /* index into rdzv->jobs */
    uint32_t part;
};
struct node_parts {
    uint32_t count;
    struct node_part items[SLOTS_PER_NODE_MAX];
};
void roster_part_add(struct rdzv *rdzv, uint32_t node, const struct job *job, uint32_t part);
void roster_part_remove(struct rdzv *rdzv, uint32_t node, const struct job *job);
/* The i-th of them, and which of its parts it is. */
struct job *roster_part(const struct rdzv *rdzv, const struct node *node, uint32_t index,
                        uint32_t *part);
/* The part of that job on the node; UINT32_MAX: none. */
uint32_t roster_part_of(const struct rdzv *rdzv, const struct node *node, const struct job *job);
uint32_t roster_part_count(const struct rdzv *rdzv, const struct node *node);

/* Brings the view of a node up to date after a change of the node. */
void roster_refresh(struct rdzv *rdzv, const struct node *node);
/* How many nodes have a name, and how many of them have so many slots, or may have. */
uint32_t roster_able_count(const struct rdzv *rdzv, uint32_t slots, uint32_t *most_slots);
/* The index into by_name of the first node whose name is not before this one. */
uint32_t roster_place(const struct rdzv *rdzv, const char *name);
/* NULL: none. */
struct node *roster_find(const struct rdzv *rdzv, const char *name);
struct node *roster_find_conn(const struct rdzv *rdzv, uint64_t conn);
uint32_t roster_index(const struct rdzv *rdzv, const struct node *node);

/* The node of this connection from now on, with its list of shims; NULL: it was refused, and its
 * connection is being closed. */
struct node *roster_hello(struct rdzv *rdzv, uint64_t conn, const struct msg_node_hello *hello);
/* Acknowledges the beat and takes its lists. */
void roster_beat(struct rdzv *rdzv, struct node *node, const struct msg_beat *beat);
/* A shim on the node has come to that phase. */
void roster_phase(struct rdzv *rdzv, struct node *node, uint64_t job_id, uint32_t generation,
                  enum shim_phase phase);
/* The connection of the node is gone. */
void roster_closed(struct rdzv *rdzv, struct node *node);
/* A node that a stored job runs on. Its workers may run although this server was away, so it counts
 * as lost only after a whole lease without a beat. NULL: the table is full. */
struct node *roster_expect(struct rdzv *rdzv, const char *name);
/* Nothing could be heard for so long before now: nobody counts as silent because of that. */
void roster_shift(struct rdzv *rdzv, uint64_t paused_us);
/* Marks nodes that were silent for too long as suspect or lost. A lost one gets has_lost_parts;
 * what that means for jobs is reconcile_lost's. */
void roster_tick(struct rdzv *rdzv);

bool roster_lists(const struct node *node, uint64_t job_id, uint32_t generation);
/* Slots of the shims that it lists. */
uint64_t roster_shims_mask(const struct node *node);
/* Slots of a node that is up which are open or will be in seconds. */
uint64_t roster_soon_mask(const struct rdzv *rdzv, const struct node *node);
/* Slots that no shim is on, that are not given to a job, and that are not closed. */
uint64_t roster_free_mask(const struct rdzv *rdzv, const struct node *node);

static inline uint32_t bits_count(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

/* The lowest `count` bits, 64 at most. */
static inline uint64_t bits_below(uint32_t count)
{
    return count >= 64 ? UINT64_MAX : (1ull << count) - 1;
}

#endif
