/* The node daemon's core: the link to the server, the shims on this node. Pure:
 * launcher_step(state, event) -> actions.
 *
 * It relays: orders (go, world, stop, forget, report_ack) from the server to the shim that they
 * name, reports and progress back. What it owns: which shims there are (their slots, phases), the
 * lease, and what becomes of a shim that died; and which slots may be used: behind a job its GPUs
 * are proved free, faults drain them (launcher_slots.c). A shim is known from `start` (or from its
 * run directory, after a restart of launcherd) until `forget`. */
#ifndef LAUNCHERD_LAUNCHER_H
#define LAUNCHERD_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/msg.h"
#include "launcherd/gpu_facts.h"

struct launcher_options {
    char name[NODE_NAME_BYTES_MAX];
    char boot_id[64];
    char address[ADDRESS_BYTES_MAX];
    char version[32];
    uint64_t instance; /* random for each process */
    uint32_t pid;
    uint32_t slots, gpus; /* slot i is GPU i for every i < gpus */
    uint64_t seed;        /* for the jitter of reconnecting */
};

/* How a generation ended here, as its dead shim had recorded it: its last report. */
struct launcher_end {
    bool is_known;
    int32_t failed_rank, failed_errno_exit;
    uint64_t failed_at_us;
    uint32_t master_port; /* other nodes may still have to be told where rank 0 was */
    uint32_t rank_count;
    struct part_report_rank ranks[SLOTS_PER_NODE_MAX];
    char tail[TAIL_BYTES_MAX];
};

struct launcher_shim {
    uint64_t job_id;
    uint32_t generation;
    enum shim_phase phase;
    uint64_t slot_mask;
    uint32_t rank_base, local_count;
    bool connected; /* its socket is open */
    bool dead; /* its process is gone, and what it left behind was swept: we report in its stead */
    bool forgotten;           /* `forget` came; waits for its process to go */
    uint32_t revision, acked; /* of our own report in its stead; the shim counts its own */
    bool reported;            /* the shim has reported since the last welcome */
    uint64_t connect_at_us;   /* when to connect again; 0: not wanted */
    uint32_t connect_failures;
    uint64_t gone_at_us;
    char cluster[33]; /* of the server that ordered it */
    char cause[REASON_BYTES_MAX];
    struct launcher_end end;
};

/* A fault that the driver has reported, and when that was told. */
struct launcher_xid {
    uint32_t number; /* 0: none */
    uint64_t at_us;
};
#define LAUNCHER_XIDS_MAX 8u

/* A GPU's slot. It is given out only while FREE; what is on it (a shim) is not of the state. */
struct launcher_slot {
    enum slot_state state; /* never BUSY */
    uint64_t checking_us;  /* since when; the usual end of a process takes up to GPU_CLEAN_US */
    uint64_t asked_us;     /* the question that is open; 0: none */
    uint64_t next_ask_us;
    uint32_t asks; /* since checking_us */
    bool has_baseline, has_ecc, remap_failed, remap_pending;
    bool contained_seen; /* Xid 94: explains the next rise of the counter */
    uint64_t baseline_bytes, ecc_uncorrected;
    uint64_t incident;                           /* of DRAINED */
    struct launcher_xid xids[LAUNCHER_XIDS_MAX]; /* the last ones, each once */
    char reason[REASON_BYTES_MAX];               /* while it is closed */
};

struct launcher {
    struct launcher_options options;
    bool server_open, welcomed;
    uint32_t failures;                /* connection attempts in a row */
    uint64_t retry_at_us, beat_at_us; /* UINT64_MAX: not armed */
    uint64_t silent_at_us;            /* when a silent server is given up; UINT64_MAX: not armed */
    uint64_t beat_interval_us, lease_us;
    uint64_t hello_at_us;    /* sent; the welcome is the first answer that a lease counts from */
    uint64_t lease_until_us; /* boot clock; 0: none was given yet */
    char cluster[33];        /* of the last welcome; another one's shims are not ours to touch */
    uint64_t random;
    uint64_t used_mask; /* slots with a living shim, after the last step */
    bool slots_changed; /* since the last beat */
    bool slots_dirty;   /* since the last KEEP_SLOTS */
    struct launcher_slot slots[SLOTS_PER_NODE_MAX];
    uint32_t shim_count;
    struct launcher_shim shims[SHIMS_PER_NODE_MAX];
};

enum launcher_event_type {
    LAUNCHER_EVENT_TICK,
    LAUNCHER_EVENT_ADOPT, /* at the start, for each run directory: shim (who it is, slots, ranks,
                           * cluster, phase), `alive`; dead: text (how it ended), and msg: its last
                           * report (shim_report), where it had recorded one, else NULL */
    LAUNCHER_EVENT_SLOTS_KEPT,    /* before these, where there is such a file: msg (slots_kept) */
    LAUNCHER_EVENT_ADOPTED,       /* after these; only now the server is called */
    LAUNCHER_EVENT_SERVER_OPEN,   /* CONNECT_SERVER succeeded */
    LAUNCHER_EVENT_SERVER_CLOSED, /* it failed, or the connection ended */
    LAUNCHER_EVENT_SERVER_MSG,    /* msg: node_welcome, beat_ack, start, go, world, stop, forget,
                                     report_ack, error */
    LAUNCHER_EVENT_SHIM_OPEN, /* job_id, generation: its socket is connected and it said shim_hello
                                 (msg) */
    LAUNCHER_EVENT_SHIM_MSG,  /* job_id, generation, msg: shim_report, progress */
    LAUNCHER_EVENT_SHIM_CLOSED, /* job_id, generation: the socket closed (the process may still be
                                   alive) */
    LAUNCHER_EVENT_SHIM_FAILED, /* job_id, generation, text: SPAWN_SHIM or PREPARE did not work */
    LAUNCHER_EVENT_SHIM_GONE,   /* job_id, generation, text (how it ended: "was killed (signal 9)"):
                                 * its process is gone and what it left behind was killed; msg: its
                                 * last report where it had recorded one, else NULL */
    LAUNCHER_EVENT_GPU,         /* gpu: the answer to an ASK_GPU; may come late or never */
    LAUNCHER_EVENT_XID,         /* slot, xid: the driver reports a fault */
};

struct launcher_event {
    uint64_t now_us;
    enum launcher_event_type type;
    uint64_t job_id;
    uint32_t generation;
    const struct msg *msg; /* borrowed for the step */
    const char *text;
    const struct launcher_shim *shim; /* ADOPT */
    const struct gpu_facts *gpu;
    uint32_t slot, xid;
    bool alive;
};

enum launcher_action_type {
    LAUNCHER_CONNECT_SERVER,
    LAUNCHER_CLOSE_SERVER, /* text; SERVER_CLOSED follows */
    LAUNCHER_SEND_SERVER,  /* msg */
    LAUNCHER_SPAWN_SHIM,   /* msg (start, borrowed from the event): write the run directory, spawn,
                              connect to its socket */
    LAUNCHER_ASK_GPU,      /* slot, asked_us, bytes_max: look at this GPU, off the loop; where more
                            * than bytes_max is used and NVML names nobody, look for openers */
    LAUNCHER_KEEP_SLOTS,   /* msg (slots_kept): write it to the state directory */
    LAUNCHER_CONNECT_SHIM, /* job_id, generation: an adopted one, or again after its socket closed
                            */
    LAUNCHER_SEND_SHIM,    /* job_id, generation, msg */
    LAUNCHER_REMOVE,       /* job_id, generation: remove the run directory (logs stay) */
    LAUNCHER_LOG,          /* level is info; text */
};

struct launcher_action {
    enum launcher_action_type type;
    uint64_t job_id;
    uint32_t generation;
    uint32_t slot;
    uint64_t asked_us, bytes_max;
    const char *text;
    struct msg msg; /* to send; borrows from the core or the event, until the next step */
};

#define LAUNCHER_TEXTS_MAX 16
#define LAUNCHER_ACTIONS_MAX (4 * SHIMS_PER_NODE_MAX + 2 * SLOTS_PER_NODE_MAX + 16)
struct launcher_actions {
    uint32_t count;
    uint64_t timer_at_us;
    struct launcher_action items[LAUNCHER_ACTIONS_MAX];
    /* backing for the messages' lists */
    struct part_beat_shim beat_shims[SHIMS_PER_NODE_MAX];
    struct part_slot_closed closed[SLOTS_PER_NODE_MAX];
    struct part_slot_kept kept[SLOTS_PER_NODE_MAX];
    struct part_report_rank ranks[SHIMS_PER_NODE_MAX][SLOTS_PER_NODE_MAX];
    uint32_t rank_rows, text_count; /* used of these */
    char texts[LAUNCHER_TEXTS_MAX][320];
};

void launcher_init(struct launcher *launcher, const struct launcher_options *options);
void launcher_step(struct launcher *launcher, const struct launcher_event *event,
                   struct launcher_actions *actions);
/* NULL: not known. */
const struct launcher_shim *launcher_shim(const struct launcher *launcher, uint64_t job_id,
                                          uint32_t generation);

#endif
