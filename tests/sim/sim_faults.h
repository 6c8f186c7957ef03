/* The faults of the simulation. Each seed draws a subset of these kinds and how often each happens.
 * Each planned fault has a random sequence of its own, so leaving one out does not change the
 * others. */
#ifndef TESTS_SIM_SIM_FAULTS_H
#define TESTS_SIM_SIM_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_PLANNED_MAX 256u
#define SIM_CLIENTS_MASKED_MAX 64u

enum sim_party { PARTY_NONE, PARTY_SERVER, PARTY_NODE, PARTY_SHIM, PARTY_WORKER };

/* X(name, chance in per mille that a seed has it, its maximum, what it is). Planned faults happen
 * that many times; rates are per mille of the events they apply to. */
#define SIM_PLANNED_TABLE(X)                                                                       \
    X(CUT, 350, 16, "a connection to the server is closed")                                        \
    X(HALF_OPEN, 250, 4, "a connection breaks, and neither side learns of it for long")            \
    X(ISOLATION, 350, 4, "a node is cut off")                                                      \
    X(PARTITION, 150, 2, "most nodes are cut off at once")                                         \
    X(ONE_WAY, 250, 3, "a node is heard and does not hear, or the other way round")                \
    X(SERVER_KILL, 450, 10, "the server dies, in some runs between two of its actions")            \
    X(SERVER_PAUSE, 300, 3, "the server is stopped")                                               \
    X(SERVER_OLD, 80, 2, "the server dies; an older version had written its rows")                 \
    X(LAUNCHER_KILL, 400, 10, "launcherd dies")                                                    \
    X(LAUNCHER_PAUSE, 250, 3, "launcherd is stopped")                                              \
    X(LEAVE, 250, 4, "a node drains itself and ends")                                              \
    X(SHIM_KILL, 300, 5, "a shim dies")                                                            \
    X(SHIM_PAUSE, 250, 3, "a shim is stopped")                                                     \
    X(SUSPEND, 150, 2, "a machine stands still")                                                   \
    X(REBOOT, 200, 2, "a machine restarts")                                                        \
    X(WORKER_KILL, 450, 6, "a worker dies")                                                        \
    X(WORKERS_KILL, 250, 3, "several workers of a job die at once")                                \
    X(WORKER_HANG, 350, 4, "a worker hangs")                                                       \
    X(UNKILLABLE, 200, 3, "a worker does not die of SIGKILL")                                      \
    X(IMPOSTOR, 250, 4, "another process has the name of a node")                                  \
    X(WALL_JUMP, 150, 3, "the server's wall clock is set")                                         \
    X(STRANGER, 300, 8, "a program of somebody else is on a GPU")                                  \
    X(NVML_HANG, 250, 4, "NVML hangs")                                                             \
    X(GPU_FAULT, 300, 8, "a GPU has a fault")                                                      \
    X(DRAIN, 300, 5, "an operator drains a slot or a node")                                        \
    X(WORKER_ABSENT, 500, 3, "a worker lives, and comes to no collective")                         \
    X(ORDER_LOST, 250, 3, "one kind of order does not arrive at a node that is up")                \
    X(LARGE_LOST, 250, 3, "large messages to or from a node that is up do not arrive")             \
    X(TWIN, 400, 3, "a node is away, and another machine has its name for a while")                \
    X(STATE_LOST, 400, 3, "launcherd dies with its state directory, and its shims live on")        \
    X(LEASE, 200, 3, "the server dies, and starts again with another --lease")                     \
    X(STUCK, 250, 3, "a shim is stopped, its node is cut off, and launcherd may start again")      \
    X(PART_LOST, 250, 3, "launcherd dies, and a shim with its run directory")                      \
    X(WAL_LOST, 150, 1, "the server dies, and its state loses the last commits")

#define SIM_RATE_TABLE(X)                                                                          \
    X(BREAK, 300, 40, "messages after which the connection breaks")                                \
    X(LATE, 400, 300, "messages that are late")                                                    \
    X(LEAK, 300, 300, "workers whose GPU is not free at once")                                     \
    X(TORN, 400, 1000, "deaths of the server in the middle of a step")                             \
    X(SLOW_COMMIT, 200, 60, "transactions that take long")                                         \
    X(SLOW_KILL, 250, 500, "workers that take long to die")                                        \
    X(SLOW_PREPARE, 200, 300, "shims that take long to get ready")                                 \
    X(PREPARE_STOPS, 150, 200, "shims that stop while they prepare")                               \
    X(CANNOT_START, 120, 80, "shims that cannot run the job")                                      \
    X(FORK_FAILS, 120, 80, "shims that cannot be started")                                         \
    X(SPAWN_FAILS, 120, 60, "workers that cannot be started")                                      \
    X(PORT_FAILS, 120, 80, "ports that cannot be reserved")                                        \
    X(ORPHANS, 250, 400, "workers that leave children behind")                                     \
    X(DRIFT, 400, 1000, "clocks that drift")                                                       \
    X(START, 200, 60, "moments of a start at which something happens to its node or the server")

enum sim_fault {
#define SIM_FAULT_NAME(name, chance, most, text) FAULT_##name,
    SIM_PLANNED_TABLE(SIM_FAULT_NAME) SIM_RATE_TABLE(SIM_FAULT_NAME)
#undef SIM_FAULT_NAME
        FAULT_COUNT
};
#define FAULT_RATES FAULT_BREAK /* from here on: rates */

struct sim;

struct sim_planned {
    enum sim_fault kind;
    uint64_t at_us, seed;
};

/* The faults of a seed that are left out. */
struct sim_mask {
    bool kinds[FAULT_COUNT];
    bool planned[SIM_PLANNED_MAX];
    bool clients[SIM_CLIENTS_MASKED_MAX];
    bool is_starts; /* START always happens, and other kinds less often */
};

struct sim_faults {
    uint64_t until_us;
    uint32_t amount[FAULT_COUNT];
    uint64_t late_max_us, slow_kill_us;
    uint64_t start_random;
    uint32_t planned_count;
    struct sim_planned planned[SIM_PLANNED_MAX];
};

const char *fault_text(enum sim_fault kind);
/* Draws the faults of this seed and plans them, without those in `mask`. */
void faults_choose(struct sim *sim, const struct sim_mask *mask);
/* Whether this fault happens now, at its rate, while faults go on. */
bool fault_strikes(struct sim *sim, enum sim_fault rate);
/* How long a process or machine is down: mostly short, sometimes longer than a lease. */
uint64_t fault_down_us(struct sim *sim);
/* A pause within a longer pause does not shorten it: pending events wait for the end of the longer
 * one. */
static inline void fault_pause_until(uint64_t *until_us, uint64_t at_us)
{
    if (*until_us < at_us)
        *until_us = at_us;
}

/* sim_machines.c: faults of one node. */
void machine_starts_at(struct sim *sim, uint32_t node, uint64_t at_us);
/* launcherd dies, or the machine restarts; it starts again after a while. */
void machine_kill(struct sim *sim, uint32_t node, bool with_machine);
/* launcherd or the machine stands still for a while. */
void machine_pause(struct sim *sim, uint32_t node, bool with_machine);
void machine_leaves(struct sim *sim, uint32_t node);
/* ways: 1: what it sends does not arrive; 2: what it is sent; 0: both. */
void machine_isolate(struct sim *sim, uint32_t node, uint64_t us, uint32_t ways);

struct msg;
struct sim_shim;

/* sim_starts.c: START. One of these moments is now: the server or launcherd passes this message on; anything else of
 * this shim. */
void starts_message(struct sim *sim, uint32_t node, const struct msg *msg);
void starts_moment(struct sim *sim, uint32_t node, const struct sim_shim *shim);

/* sim_outages.c: the server dies, and starts again after a while: it may be SERVER_OLD or LEASE. */
void outage_kill(struct sim *sim, enum sim_fault kind);
/* The server dies after the lost node's parts were given up, before the lease is over. */
void outage_kill_later(struct sim *sim);
void outage_pause(struct sim *sim);
void outage_set_clock(struct sim *sim);

#endif
