/* When training over NCCL has to be aborted: a peer was lost, NCCL reports an error, or steps no
 * longer end. Pure functions; guard.h is the edge.
 *
 * A collective on the device does not fail when a peer dies: it waits. So the guard checks every
 * NCCL_WATCH_TICK_US, and aborts. A stall is
 *   before the first step has ended: NCCL_WATCH_FIRST_US
 *   later, without the end of a step: NCCL_WATCH_STALL_US, or five times the longest step so far.
 *     The first step counts too: its warm-up only makes the limit longer
 * The time in which this rank loads its own batch is no silence, since no collective waits then.
 * But it is part of a step's length: the other ranks load as long, and this one waits for them.
 * If a launcher watches for hangs too, both limits are twice as long: then the launcher finds the
 * hang first, keeps the stacks of all ranks, and names the rank that the others wait for. */
#ifndef WORKER_BACKEND_CUDA_NCCL_WATCH_H
#define WORKER_BACKEND_CUDA_NCCL_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#define NCCL_WATCH_TICK_US UINT64_C(100000)
#define NCCL_WATCH_STALL_US UINT64_C(30000000)
#define NCCL_WATCH_FIRST_US UINT64_C(600000000)

enum nccl_watch_verdict {
    NCCL_WATCH_FINE,
    NCCL_WATCH_PEER,    /* a peer was lost */
    NCCL_WATCH_ERROR,   /* NCCL reported an error */
    NCCL_WATCH_STALLED, /* no step ends any more */
};

struct nccl_watch {
    enum nccl_watch_verdict verdict; /* the first verdict other than FINE stays */
    bool is_paused;                  /* no steps are expected */
    bool has_step;                   /* at least one step has ended without a pause in it */
    bool is_loading;                 /* since loading_us */
    uint32_t patience;               /* factor on the limits of a stall */
    uint64_t since_us;               /* of the last progress */
    uint64_t loading_us;             /* when this rank's own loading began */
    uint64_t loaded_us;              /* how long it has loaded since since_us, before loading_us */
    uint64_t longest_us;             /* the longest step so far */
};

enum nccl_watch_event_type {
    NCCL_WATCH_TICK,
    NCCL_WATCH_STEP,    /* a step has ended on the device; ends a pause */
    NCCL_WATCH_PAUSE,   /* validation, a checkpoint, new plans: no step is expected */
    NCCL_WATCH_LOADING, /* this rank waits for its own next batch */
    NCCL_WATCH_LOADED,
};

struct nccl_watch_event {
    enum nccl_watch_event_type type;
    uint64_t now_us;
    bool peer_lost, has_error; /* only for TICK */
};

void nccl_watch_init(struct nccl_watch *watch, uint64_t now_us);
/* True only once: the communicator has to be aborted now, because of watch->verdict. */
bool nccl_watch_step(struct nccl_watch *watch, const struct nccl_watch_event *event);
/* How long a time without progress is a stall, in the present state. */
uint64_t nccl_watch_limit_us(const struct nccl_watch *watch);
/* The time without progress, less what this rank has loaded meanwhile. */
uint64_t nccl_watch_silent_us(const struct nccl_watch *watch, uint64_t now_us);

#endif
