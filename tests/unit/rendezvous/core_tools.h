/* The server's core under test, shared by this folder: one core, its last actions, and a clock that
 * the test moves. */
#ifndef TESTS_UNIT_RENDEZVOUS_CORE_TOOLS_H
#define TESTS_UNIT_RENDEZVOUS_CORE_TOOLS_H

#include "rendezvous/core/rdzv.h"

#define SECOND_US 1000000ull

extern struct rdzv *core;
extern struct rdzv_actions actions; /* of the last step */
extern uint64_t now_us;
extern int64_t wall_ms;

/* A core that is not restored yet, for so many jobs and nodes; at 100 s. */
void begin_with(uint32_t jobs_max, uint32_t nodes_max);
void begin_quotas(uint32_t jobs_max, uint32_t nodes_max, uint32_t max_slots, uint32_t max_queued);
void begin_store_quota(uint32_t jobs_max, uint32_t nodes_max, uint64_t max_stored);
/* With preemption: a job of a higher priority may stop others. */
void begin_preempting(uint32_t jobs_max, uint32_t nodes_max);
/* On the machine with that id of its boot. */
void begin_at(uint32_t jobs_max, uint32_t nodes_max, const char *boot_id);
void begin_one_machine(uint32_t jobs_max, uint32_t nodes_max);
void begin_preempting_quotas(uint32_t jobs_max, uint32_t nodes_max, uint32_t max_slots);
/* With the rule that after a lost node a job without a fence of its own waits for the lease. */
/* With leases of 60 s, and a store that cannot tell that its state is the newest. */
void begin_unsure(uint32_t jobs_max, uint32_t nodes_max);
/* With leases of 60 s, and a state that is a restored copy. */
void begin_copy(uint32_t jobs_max, uint32_t nodes_max);
void begin_fenced(uint32_t jobs_max, uint32_t nodes_max);
void begin_leased(uint32_t jobs_max, uint32_t nodes_max, uint64_t lease_us); /* likewise */
/* The server before this one gave leases of another length. */
void begin_leased_after(uint32_t jobs_max, uint32_t nodes_max, uint64_t lease_us,
                        uint64_t lease_before_us);
/* One event now; all tables of the core are checked after it. */
void step(struct rdzv_event event);
void step_unchecked(struct rdzv_event event);

/* A copy of a small job's record that outlives the core. */
struct rdzv_record keep_record(uint64_t job_id);
/* Among the last actions. */
uint32_t count_of(enum rdzv_action_type type);
const struct rdzv_action *find(enum rdzv_action_type type); /* the first; NULL: none */
bool says(const char *text); /* whether an event of the last step has these words */

/* `hello` with what it leaves empty filled in: protocol, version, address, and ids that belong to
 * the node's name: the same machine, boot and state directory each time. */
void step_hello(uint64_t conn, struct msg_node_hello hello);
/* `called`: the address of the server; NULL: its unix socket. */
void step_hello_at(uint64_t conn, struct msg_node_hello hello, const char *called);
void step_node(uint64_t conn, const struct msg *msg);
void step_beat(uint64_t conn, const struct part_beat_shim *shims, uint32_t count);
/* A report of a part with one rank, of generation 1 unless given. The rank failed if exit_code is not
 * 0; with `is_lost` it was never started, or went with its shim. */
struct rank_report {
    uint64_t job_id;
    uint32_t rank;
    enum shim_phase phase;
    uint32_t generation;
    int32_t exit_code;
    uint32_t signal; /* the rank failed by it */
    bool warm_late, by_peer;
    bool has_world;                   /* rank 0's blob has reached its ranks */
    bool joined, is_lost, is_stopped; /* is_stopped: it ended on the signal */
    uint64_t failed_age_us;
    enum failure_class failed_class;
    uint32_t errno_exit; /* 126, 127: it could not be run */
    const char *cause, *tail;
    const char *error; /* also: the kernel killed it because memory ran out */
};
void step_rank_report(uint64_t conn, struct rank_report report);
/* A report of all ranks of a part, the first of its shim. */
void step_part_report(uint64_t conn, uint64_t job_id, uint32_t generation, enum shim_phase phase,
                      const struct part_report_rank *ranks, uint32_t count);
/* Submits `submit` with its empty request id, name, cwd and argv filled in. Returns the job's id;
 * 0: refused. */
uint64_t step_submit(struct msg_submit submit);
uint64_t step_submit_as(struct msg_submit submit, const char *user, bool is_admin);
/* `stored`: what the user has in the store. */
uint64_t step_submit_stored(struct msg_submit submit, const char *user, struct rdzv_stored stored);

#endif
