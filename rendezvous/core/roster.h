/* The table of nodes: which are connected, which shims they list, and when a silent node counts as
 * lost. */
#ifndef RENDEZVOUS_CORE_ROSTER_H
#define RENDEZVOUS_CORE_ROSTER_H

#include "rendezvous/core/identity.h"
#include "rendezvous/core/job.h"
#include "rendezvous/core/trouble.h"

/* What a node reports of one of its slots. */
struct node_slot {
    enum slot_state state; /* FREE: may be given out; never BUSY; set in slots.c only */
    bool was_logged;       /* its closing was logged, so its opening will be */
    uint64_t incident;
    uint64_t resume_incident; /* an operator has resumed this incident; sent until the node acts */
    int64_t since_ms;         /* wall clock */
};

#define SHIMS_FEW 8u /* a node with more shims lists them in a separate table */

/* Kept small, so that many nodes lie close together. What most nodes never need is in separate
 * tables, whose untouched pages cost no memory: the lists of nodes with many shims, closed slots,
 * and their reasons. */
struct node {
    bool used;
    char name[NODE_NAME_BYTES_MAX];
    struct rdzv_identity
        identity; /* of its launcherd, or of the one that its parts were given to */
    char address[ADDRESS_BYTES_MAX];
    char called
        [ADDRESS_BYTES_MAX]; /* the server's address that it reached; "": a unix socket (reach.h) */
    char version[32];
    uint64_t instance;
    uint64_t conn;        /* 0: none */
    uint64_t newest_conn; /* the newest one on which this instance said hello */
    enum node_state state;
    bool has_beat;
    bool has_lost_parts; /* it was lost, and not all generations on it have been failed yet */
    uint32_t fenced;     /* jobs that wait for its list (fence.h) */
    uint64_t silent_us;  /* how long it had been silent when it was lost */
    /* What an earlier launcherd of this name may still run until its lease ends: slots of parts that
     * were given up unseen, and parts that the present one does not know (part_state.is_away). */
    uint64_t held_mask;
    struct rdzv_identity held_by; /* whose they are */
    uint64_t held_instance;       /* its process; 0: several, or not known */
    uint64_t held_until_us, away_until_us;
    bool held_is_restored;         /* some of it was given up before this server began */
    bool lingers;                  /* ranks of jobs that others wait for may run there (linger.h) */
    bool list_is_proof;            /* its launcherd knows what runs of that and of what is held */
    uint64_t notice_until_us;      /* `notice` is shown until then */
    char notice[REASON_BYTES_MAX]; /* what is wrong with the name: another launcherd wants it */
    struct rdzv_identity twin;     /* that one */
    uint64_t beat_at_us;
    uint64_t unheard_us; /* before its newest message; UINT64_MAX: that was the first */
    struct trouble trouble;
    uint64_t closed_at_us; /* when its connection closed; 0: it is open, or unknown */
    uint64_t lost_at_us;   /* when it counts as lost if it stays silent */
    uint32_t pid, slots, gpus;
    uint32_t shim_count;          /* in its newest list */
    struct part_beat_shim *shims; /* [shim_count], in a field of this struct or in `many` */
    struct part_beat_shim few[SHIMS_FEW];
    struct part_beat_shim *many;         /* [SHIMS_PER_NODE_MAX] */
    struct node_slot *slot_states;       /* [SLOTS_PER_NODE_MAX] */
    char (*reasons)[REASON_BYTES_MAX];   /* [SLOTS_PER_NODE_MAX], of closed slots */
    uint64_t closed_mask, checking_mask; /* slots that are not FREE; slots that are CHECKING */
    bool is_drained;                     /* as a whole, by an operator */
    bool is_leaving;                     /* its launcherd ends once it has no job */
    bool drains_on_term;                 /* when its launcherd restarts, its jobs are stopped */
    uint32_t protocol;                   /* what its launcherd speaks */
    int64_t leaving_ms;                  /* is_leaving: since when, wall clock */
    uint64_t drain_mask;                 /* slots, by an operator */
};

/* The fields that scans over all nodes read, kept apart so that all of them fit into a few cache
 * lines. */
struct node_view {
    uint64_t offer; /* slots that are open and free of shims, while the node is up */
    uint64_t able;  /* slots that a job may get one day: not lost, not closed for long */
    uint64_t conn;  /* 0: none */
    uint32_t slots; /* 0: no hello yet */
};

/* The jobs with a part on a node, unless the part counts as ended because the node was lost. At
 * most one for each slot. */
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
/* The i-th of these jobs, and which of its parts is on the node. */
struct job *roster_part(const struct rdzv *rdzv, const struct node *node, uint32_t index,
                        uint32_t *part);
/* The index of that job's part on the node; UINT32_MAX: none. */
uint32_t roster_part_of(const struct rdzv *rdzv, const struct node *node, const struct job *job);
uint32_t roster_part_count(const struct rdzv *rdzv, const struct node *node);

/* Updates the view of a node after the node has changed. */
void roster_refresh(struct rdzv *rdzv, const struct node *node);
/* How many known nodes have, or may have, at least that many slots. *most_slots: the most of any
 * node. */
uint32_t roster_able_count(const struct rdzv *rdzv, uint32_t slots, uint32_t *most_slots);
/* The index into by_name of the first node whose name is not smaller than this one. */
uint32_t roster_place(const struct rdzv *rdzv, const char *name);
/* NULL: none. */
struct node *roster_find(const struct rdzv *rdzv, const char *name);
struct node *roster_find_conn(const struct rdzv *rdzv, uint64_t conn);
uint32_t roster_index(const struct rdzv *rdzv, const struct node *node);

/* Binds a node to this connection and takes its list of shims. NULL: the node was refused, and the
 * connection is being closed. *kin: what this launcherd is to the last one of that name; the same
 * process is KIN_SAME. */
struct node *roster_hello(struct rdzv *rdzv, uint64_t conn, const struct msg_node_hello *hello,
                          enum kinship *kin);
/* The longest lease of what runs when a server begins: --lease may have been longer before. */
uint64_t roster_longest_lease_us(const struct rdzv *rdzv);
/* Until when ranks on a node that is not heard any more may run. */
uint64_t roster_lease_end_us(const struct rdzv *rdzv, const struct node *node);
/* A part on the node was given up, and nobody has seen its end. */
void roster_hold(struct rdzv *rdzv, struct node *node, uint64_t slot_mask);
/* The same of an earlier server. */
void roster_restore_hold(struct rdzv *rdzv, const struct rdzv_hold *hold);
/* Acknowledges the beat and takes its lists. */
void roster_beat(struct rdzv *rdzv, struct node *node, const struct msg_beat *beat);
/* A shim on the node has reached that phase. */
void roster_phase(struct rdzv *rdzv, struct node *node, uint64_t job_id, uint32_t generation,
                  enum shim_phase phase);
/* The connection of the node was closed. */
void roster_closed(struct rdzv *rdzv, struct node *node);
/* Closes the connection of a node, so that nothing that is in flight on it can arrive late. The node connects again. */
void roster_drop(struct rdzv *rdzv, struct node *node, const char *why);
/* Adds the node of a stored job's part. Its workers may have gone on while this server was away,
 * so the node counts as lost only after a whole lease without a beat. NULL: the table is full. */
struct node *roster_expect(struct rdzv *rdzv, const struct rdzv_part *part);
/* The server could not hear anybody for that long before now: no node counts as silent because of
 * it. */
void roster_shift(struct rdzv *rdzv, uint64_t paused_us);
/* Marks nodes that have been silent for too long as suspect or lost. A lost node gets
 * has_lost_parts; reconcile_lost does the rest. */
void roster_tick(struct rdzv *rdzv);

bool roster_lists(const struct node *node, uint64_t job_id, uint32_t generation);
/* The slots of all shims that the node lists. */
uint64_t roster_shims_mask(const struct node *node);
/* The slots of an up node that are open or will be in seconds. */
uint64_t roster_soon_mask(const struct rdzv *rdzv, const struct node *node);
/* The slots that are open, have no shim, and belong to no job. */
uint64_t roster_free_mask(const struct rdzv *rdzv, const struct node *node);

static inline uint32_t bits_count(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

/* A mask of the lowest `count` bits, 64 at most. */
static inline uint64_t bits_below(uint32_t count)
{
    return count >= 64 ? UINT64_MAX : (1ull << count) - 1;
}

#endif
