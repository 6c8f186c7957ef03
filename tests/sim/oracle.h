/* The rules that every run must satisfy, judged by what really happened: the edges of the
 * simulation tell the oracle each thing that they did or saw, with its true time. The oracle reads
 * no core. Each rule has a name, which a failure prints:
 *
 *   lease            no worker outlives its lease: it counts from when the node sent the last beat
 *                    that was acknowledged; 0.5 s more where launcherd must kill a shim that is stuck
 *   one-rank         a rank is spawned once in a generation, in one place
 *   one-slot         one worker a slot
 *   one-generation   workers of two generations never run at once, except on nodes that were lost,
 *                    and then only of jobs that have a fence of their own, or after the lease
 *   stored           a generation is in the store before any order for it is sent or any part of it runs; what was
 *                    acknowledged (submit, cancel, drain) is there after any crash, once
 *   written          what may be written: generations rise by one, ended jobs stay, checkpoints never
 *                    go back, and progress counts only if the current generation made it
 *   number           no number of a job is given twice, also by a server whose store was put back; a generation
 *                    gets no number of which a node has a shim. A server takes its state for one of the past
 *                    only if it is
 *   budget           restarts since the last checkpoint stay within --max-restarts
 *   back-off         the second restart without progress waits, and the time doubles
 *   cause            a generation is stopped as failed only if a part of it failed: an outage of
 *                    the server that is shorter than the lease, or a pause of the server, does no harm
 *   hang             a generation is stopped as hung only if one of its processes stands still, or never enters the next
 *                    collective. Such a process is found within the bound of docs/hangs.md, if all nodes could be
 *                    heard meanwhile, and it is named
 *   start            no start without an end: while the server runs and all nodes of a generation are up, it runs, or has
 *                    failed or is cancelled, within the limits of docs/architecture.md ("Every order has a deadline").
 *                    A start that was lost is sent again, one that was given up does not arrive, a node that is named
 *                    for a late start was late, and after the go a stop ends the ranks whatever their shim does
 *   lost             a node that is gone is noticed
 *   first-cause      the failure that a job shows is the first by true time, with its exit code
 *   cancel           a stored cancel wins: no generation follows, the job ends as cancelled
 *   linear           what clients are told of a job is in one order: what one was told holds for all who ask after that
 *                    (oracle_clients.c)
 *   time-limit       a job is stopped when its time limit is over, not before, also by a restarted server
 *   grace            workers get the signal and exactly the grace that was asked for, also
 *                    when another rank has failed; 10 s more where launcherd must kill a shim that is
 *                    stuck. No grace when the lease is over, or when a rank cannot be spawned
 *   local-peers      the first failure of a worker stops the other workers of its shim, within the grace
 *   store            the store of a generation ends after its last rank on any node, unless the
 *                    generation has failed, is stopped, or the lease is over; it is gone at the end
 *   go, world        go after every shim is ready, with the port of rank 0; the world after every
 *                    rank has joined, with the blob of rank 0. No rank begins without a go that the server has sent,
 *                    nor when its generation is over. What was lost is sent again
 *   fifo             a job never starts before an earlier one that fits wherever it does, and later
 *                    jobs do not take slots from the first waiting job
 *   after            a job that waits for another starts when that one has ended in the required way, and
 *                    ends as cancelled if that cannot happen
 *   array            all jobs of an array are in the store, or none; no more of them run at once than allowed
 *   requeue          at its time limit a job with --requeue-at-limit goes back into the queue, behind the waiting jobs,
 *                    if it has a newer checkpoint than the last time its limit was over; else it ends with 124
 *   warm             waiting processes of a job are on slots of no other job, no rank runs beside them, and they end with the job
 *   warn             the warning of --warn comes once in a generation, at the chosen time before the time limit
 *   preempt          a running job is stopped only for a waiting job of higher priority, and starts
 *                    again after that job
 *   elsewhere        after a failure of a node, and after a late start, the job starts on others, if they have room
 *   ranks            a restart keeps ranks on nodes that still have room for them; if the number of nodes
 *                    changes, the nodes that stay come first and keep their order
 *   elastic          a job has as many nodes as it asked for; only a job whose number of nodes may change is
 *                    stopped as planned, which uses no budget; it grows at a checkpoint when it can
 *   placed           no rank is placed on a slot that the node has closed or still uses, or
 *                    that is drained, nor on a GPU that is not free, nor is such a GPU told as free; and none is started beside an older shim
 *   leave            launcherd on a leaving node ends only when nothing runs there, and gets no new work once the
 *                    server has acknowledged that the node leaves; no other node stops a shim by itself
 *   name             while a node sends beats, no other process gets its name
 *   orphans          a part that has ended leaves no process behind
 *   unkillable       launcherd gives up on processes that do not die after a minute
 *   outcome          each job ends as it must, and then nothing is left of it */
#ifndef TESTS_SIM_ORACLE_H
#define TESTS_SIM_ORACLE_H

#include "tests/sim/sim.h"

struct oracle *oracle_new(const struct sim_size *size);
void oracle_free(struct oracle *oracle);

/* -- the server (oracle_job.c, oracle_queue.c, oracle_roster.c) -- */
/* Call this before the server stops, is stopped or waits for its disk. */
void oracle_time(struct sim *sim);
void oracle_wall_clock_set(struct sim *sim);
/* is_old: an older version wrote the stored state. */
void oracle_server_started(struct sim *sim, bool is_old);
/* oracle_history.c: the store was copied, and put back; the server says that its state is of the past. oracle_is_in_copy: a
 * generation that had begun in the copy. If it was about to start there, it is ordered again before the server knows that
 * its state is of the past, also where it has run and ended since. */
void oracle_keep(struct sim *sim);
bool oracle_is_in_copy(const struct sim *sim, uint64_t job_id, uint32_t generation);
void oracle_put_back(struct sim *sim);
void oracle_of_past(struct sim *sim);
/* oracle_write: a row is about to be written; before: the present row, or NULL. oracle_committed:
 * the whole transaction was written. */
void oracle_write(struct sim *sim, const struct rdzv_record *before,
                  const struct rdzv_record *after);
void oracle_committed(struct sim *sim);
/* The server sends this message on a node's connection. */
void oracle_sends(struct sim *sim, uint32_t conn, const struct msg *msg);
/* The server has processed this message of a node; `actions`: its response. */
void oracle_server_hears(struct sim *sim, uint32_t conn, const struct msg *msg,
                         const struct rdzv_actions *actions);
void oracle_conn_closed(struct sim *sim, uint32_t conn);
/* An operator's request was acknowledged, or is about to be made. */
void oracle_drained(struct sim *sim, const char *node, uint64_t slot_mask);
void oracle_resumed(struct sim *sim, const char *node);

/* -- nodes, shims and workers (oracle_node.c) -- */
void oracle_node_hears(struct sim *sim, uint32_t node, const struct msg *msg);
void oracle_node_sends(struct sim *sim, uint32_t node, const struct msg *msg);
/* launcherd stops a shim: the server has ordered that, or the node leaves and no server answers. */
void oracle_node_stops(struct sim *sim, uint32_t node, const struct sim_shim *shim);
void oracle_shim_hears(struct sim *sim, uint32_t node, struct sim_shim *shim,
                       const struct msg *msg);
/* Something in this part has failed, or is certain to fail. rank -1: no rank. */
void oracle_failed(struct sim *sim, const struct sim_shim *shim, uint32_t node, int32_t rank,
                   uint32_t number);
void oracle_node_failed(struct sim *sim, uint32_t node);
void oracle_ordered(struct sim *sim, uint32_t node, const struct msg_start *start);
/* A launcherd that does not know this part has told the server so. */
void oracle_denied(struct sim *sim, uint64_t job_id, uint32_t generation);
/* launcherd ends because nothing is left on its node. */
void oracle_left(struct sim *sim, uint32_t node);
void oracle_prepared(struct sim *sim, struct sim_shim *shim, uint32_t port);
void oracle_goes(struct sim *sim, const struct sim_shim *shim, uint32_t port);
void oracle_spawned(struct sim *sim, uint32_t node, const struct sim_shim *shim, uint32_t worker);
void oracle_joined(struct sim *sim, const struct sim_shim *shim, uint32_t worker, uint8_t blob);
void oracle_world(struct sim *sim, const struct sim_shim *shim, uint8_t blob);
/* The newest checkpoint that workers of the job have committed. */
uint64_t oracle_checkpoint(const struct sim *sim, uint64_t job_id);
void oracle_said(struct sim *sim, const struct sim_shim *shim, uint64_t checkpoint_step);
void oracle_succeeded(struct sim *sim, const struct sim_shim *shim, uint32_t worker);
/* The shim sends its workers the signal of --warn. */
void oracle_warns(struct sim *sim, uint32_t node, const struct sim_shim *shim, uint32_t signal);
/* In this order: the shim kills its workers; the shim ends its store; launcherd kills the shim; the
 * shim has ended. */
void oracle_kills(struct sim *sim, uint32_t node, const struct sim_shim *shim);
void oracle_ends_store(struct sim *sim, uint32_t node, const struct sim_shim *shim);
void oracle_kills_shim(struct sim *sim, uint32_t node, const struct sim_shim *shim);
void oracle_ended(struct sim *sim, uint32_t node, const struct sim_shim *shim);

/* -- clients (oracle_clients.c) -- */
/* A client asks for the state of ask->job_id; it has an answer. */
void oracle_asks(const struct sim *sim, struct sim_ask *ask);
void oracle_answers(struct sim *sim, const struct sim_ask *ask);
/* A client has the answer to its submit, or its cancel. */
void oracle_told_submitted(struct sim *sim, const struct sim_client *client);
void oracle_told_cancel(struct sim *sim, uint64_t job_id, bool is_refused);

/* Writes the jobs that have not ended into the trace. */
void oracle_note_waiting(struct sim *sim);
/* Regular checks during the run; the checks at its end. */
void oracle_check(struct sim *sim);
void oracle_check_end(struct sim *sim);

#endif
