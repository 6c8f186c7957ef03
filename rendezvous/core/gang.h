/* The memory of one generation of a job: its parts and ranks. Each gang has the size that its
 * generation needs, from one region for all jobs. A waiting job has none. */
#ifndef RENDEZVOUS_CORE_GANG_H
#define RENDEZVOUS_CORE_GANG_H

#include "rendezvous/core/blocks.h"
#include "rendezvous/core/hang.h"
#include "rendezvous/core/rdzv.h"
#include "rendezvous/core/straggler.h"

#define NODE_NONE UINT16_MAX

/* The kinds of orders to nodes. All orders of one kind leave before those of the next: a slot's
 * last shim is forgotten before the next one starts on it. */
enum order { ORDER_FORGET, ORDER_STOP, ORDER_START, ORDER_GO, ORDER_WORLD, ORDER_COUNT };

/* What a part of a generation does next (steps.h). */
enum part_step {
    STEP_TAKE,
    STEP_PREPARE,
    STEP_WAIT,
    STEP_RUN,
    STEP_WORK,
    STEP_WORLD,
    STEP_STORE,
    STEP_STOP,
    STEP_OVER
};

/* What the server knows of one part of the current generation. */
struct part_state {
    uint16_t node;    /* index into rdzv->nodes; NODE_NONE: its node has no entry */
    bool is_reported; /* a report came since the start order or since this server started */
    bool is_lost;     /* its node was lost or no longer knows it: counts as ended */
    bool is_away;     /* its node's launcherd does not list it, and may be another one than the part
                       * was given to: nothing is known of the part, and nothing is sent */
    bool has_world;
    bool has_joined; /* all its ranks have joined */
    bool warm_late;  /* see msg.h; the job's events have it already */
    bool cannot_run; /* the command cannot be run there */
    bool is_silent;  /* its shim does not answer its launcherd, although its ranks run */
    bool is_unkept;  /* its end is not stored on its node, and people were told */
    bool is_late;    /* its step is overdue, and that was dealt with */
    uint8_t step;    /* enum part_step */
    enum shim_phase phase;
    uint32_t master_port;
    uint32_t step_at_s; /* boot clock, when its step began, rounded up; 0: none has */
};

struct gang {
    uint32_t part_count;          /* 0: no generation */
    uint32_t word_count;          /* 64-bit words of one kind in `owed` */
    struct rdzv_part *places;     /* [part_count] */
    struct part_state *parts;     /* [part_count] */
    struct rdzv_rank *ranks;      /* [world] */
    struct hang_rank *told;       /* [world] */
    struct straggler_rank *paces; /* [world] */
    uint64_t *owed; /* [ORDER_COUNT][word_count]: orders that have not left; bit i: part i */
};

/* A zeroed gang. False: there is no room. */
bool gang_new(struct blocks *blocks, struct gang *gang, uint32_t part_count, uint32_t world);
void gang_free(struct blocks *blocks, struct gang *gang);
/* How many chunks of memory the gangs of a core with these options may need. */
uint32_t gang_chunks(const struct rdzv_options *options);

/* The bits of one kind of order, [word_count]. */
static inline uint64_t *gang_owed(const struct gang *gang, enum order order)
{
    return gang->owed + (uint32_t)order * gang->word_count;
}

#endif
