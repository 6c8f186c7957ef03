#include "launcherd/core/shim.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

#include "common/utf8.h"
#include "launcherd/core/shim_lease.h"
#include "launcherd/core/shim_progress.h"
#include "launcherd/core/shim_stop.h"
#include "launcherd/core/shim_store.h"
#include "launcherd/core/shim_take.h"
#include "launcherd/core/shim_warn.h"

#define REPORT_AGAIN_US 1000000u
#define KEEP_AFTER_LEASE_US (3600u * 1000000ull)
#define KEEP_RECORDED_US 60000000u /* a launcherd that is being replaced is back by then */
#define SIGNAL_UNKNOWN_EXIT 128    /* like a shell, which exits with 128 + N after signal N */

void shim_init(struct shim *shim, const struct shim_options *options)
{
    assert(options->local_count >= 1 && options->local_count <= SLOTS_PER_NODE_MAX);
    memset(shim, 0, sizeof *shim);
    shim->options = *options;
    shim->phase = SHIM_PREPARING;
    shim->revision = 1;
    shim->failed_rank = -1;
    shim->lease_until_us = options->lease_until_us;
}

static int32_t global_rank(const struct shim *shim, uint32_t local)
{
    return (int32_t)(shim->options.rank_base + local);
}

static uint32_t errno_exit(int32_t code)
{
    return code == 126 || code == 127 ? (uint32_t)code : 0;
}

/* Exit code 125 stands for the machine, which has no process or no memory left, and not for the
 * command. */
static enum failure_class class_of_code(int32_t code)
{
    return errno_exit(code) != 0 ? FAILURE_PROGRAM : FAILURE_NODE;
}

static void on_port(struct shim *shim, const struct shim_event *event)
{
    if (shim->phase != SHIM_PREPARING)
        return;
    if (event->port == 0) {
        shim_fail(shim, event, FAILURE_NODE, -1, "%s",
                  event->text != NULL ? event->text : "no port could be reserved");
        shim_set_phase(shim, SHIM_ENDED, event->now_us);
        return;
    }
    shim->master_port = event->port;
    shim_set_phase(shim, SHIM_READY, event->now_us);
}

static void on_start(struct shim *shim, const struct shim_event *event,
                     struct shim_actions *actions)
{
    if (shim->phase != SHIM_PREPARING)
        return; /* the lease had ended before the first step */
    if (shim->options.rank_base == 0)
        shim_add(actions, (struct shim_action){.type = SHIM_RESERVE_PORT});
    else
        shim_set_phase(shim, SHIM_READY, event->now_us);
}

static void on_cannot_start(struct shim *shim, const struct shim_event *event)
{
    if (shim->phase != SHIM_PREPARING)
        return;
    shim_fail(shim, event, class_of_code(event->code), -1, "%s", event->text);
    shim->failed_errno_exit = errno_exit(event->code);
    shim_set_phase(shim, SHIM_ENDED, event->now_us);
}

static void on_spawned(struct shim *shim, const struct shim_event *event,
                       struct shim_actions *actions)
{
    assert(event->local < shim->options.local_count);
    struct shim_rank *rank = &shim->ranks[event->local];
    assert(shim->go_taken && rank->state == RANK_WAITING && event->pid != 0);
    rank->state = RANK_RUNNING;
    rank->pid = event->pid;
    shim_take_begin(rank, event);
    shim->tree_empty = false;
    shim_change(shim);
    if (shim->phase == SHIM_STOPPING) {
        shim_kill_tree(shim, actions); /* it was spawned after the others got the signal */
        return;
    }
    for (uint32_t i = 0; i < shim->options.local_count; i++)
        if (shim->ranks[i].state == RANK_WAITING)
            return;
    if (shim->phase == SHIM_READY)
        shim_set_phase(shim, SHIM_RUNNING, event->now_us);
}

static void on_spawn_failed(struct shim *shim, const struct shim_event *event,
                            struct shim_actions *actions)
{
    assert(event->local < shim->options.local_count);
    struct shim_rank *rank = &shim->ranks[event->local];
    assert(rank->state == RANK_WAITING);
    rank->state = RANK_EXITED;
    rank->exit_code = event->code;
    shim_change(shim);
    if (!shim->has_failed && shim->phase != SHIM_STOPPING) {
        int32_t failed = global_rank(shim, event->local);
        shim_fail(shim, event, class_of_code(event->code), failed, "rank %d: %s", failed,
                  event->text);
        shim->failed_errno_exit = errno_exit(event->code);
    }
    shim_stop_now(shim, event->now_us, actions);
    shim_end_if_over(shim, event->now_us);
}

static void fail_by_exit(struct shim *shim, const struct shim_event *event)
{
    int32_t rank = global_rank(shim, event->local);
    const char *more = event->text != NULL && !event->has_raised ? event->text : "";
    const char *colon = more[0] != '\0' ? ": " : "";
    const char *name = shim_signal_name(event->signal);

    if (event->signal == 0)
        shim_fail(shim, event, FAILURE_PROGRAM, rank, "rank %d exited with code %d%s%s", rank,
                  event->code, colon, more);
    else if (name != NULL)
        shim_fail(shim, event, FAILURE_PROGRAM, rank, "rank %d was killed by signal %u (%s)%s%s",
                  rank, event->signal, name, colon, more);
    else
        shim_fail(shim, event, FAILURE_PROGRAM, rank, "rank %d was killed by signal %u%s%s", rank,
                  event->signal, colon, more);
}

/* A worker died and is still writing a core file. Its peers and the server need not wait for
 * that. */
static void on_dumping(struct shim *shim, const struct shim_event *event,
                       struct shim_actions *actions)
{
    assert(event->local < shim->options.local_count);
    struct shim_rank *rank = &shim->ranks[event->local];
    struct shim_event how = *event;

    if (rank->state != RANK_RUNNING || shim->phase == SHIM_STOPPING)
        return;
    how.code = event->signal == 0 ? SIGNAL_UNKNOWN_EXIT : 0;
    how.text = "it is writing a core file";
    rank->state = RANK_EXITED;
    rank->is_dumping = true;
    rank->exit_code = how.code;
    rank->signal = event->signal;
    if (event->signal != 0)
        fail_by_exit(shim, &how);
    else
        shim_fail(shim, event, FAILURE_PROGRAM, global_rank(shim, event->local),
                  "rank %d was killed by a signal: %s", global_rank(shim, event->local), how.text);
    shim_stop_peers(shim, event->now_us, actions);
    if (shim_workers_are_gone(shim))
        shim_workers_gone(shim, event->now_us, false, actions);
}

/* A worker has raised an exception. Its peers are stopped now, because some processes never end by
 * themselves after that. */
static void on_raised(struct shim *shim, const struct shim_event *event,
                      struct shim_actions *actions)
{
    assert(event->local < shim->options.local_count);
    struct shim_rank *rank = &shim->ranks[event->local];

    if (rank->state != RANK_RUNNING || shim->phase != SHIM_RUNNING)
        return;
    rank->state = RANK_EXITED;
    rank->is_raised = true;
    rank->exit_code = 1; /* Python's exit code; EXITED may bring another one */
    shim_fail(shim, event, FAILURE_PROGRAM, global_rank(shim, event->local), "rank %d %s",
              global_rank(shim, event->local), event->text);
    shim_stop_peers(shim, event->now_us, actions);
}

/* Whether it failed before it was told to stop, although it ended later. */
static bool failed_before_stop(const struct shim *shim, const struct shim_event *event)
{
    return event->age_us != 0 && event->age_us < event->now_us &&
           event->now_us - event->age_us < shim->stopping_at_us;
}

static void on_exited(struct shim *shim, const struct shim_event *event,
                      struct shim_actions *actions)
{
    assert(event->local < shim->options.local_count);
    struct shim_rank *rank = &shim->ranks[event->local];
    if (rank->state != RANK_RUNNING && !rank->is_dumping && !rank->is_raised)
        return;
    if (shim_take_exited(shim, rank, event, actions))
        return;
    if (event->has_raised && shim->phase == SHIM_STOPPING && failed_before_stop(shim, event)) {
        rank->is_raised = true; /* before the stop, whose signal has ended it */
        rank->exit_code = 1;
        shim_fail(shim, event, FAILURE_PROGRAM, global_rank(shim, event->local), "rank %d %s",
                  global_rank(shim, event->local), event->text);
    }
    bool by_itself = shim->phase != SHIM_STOPPING || rank->is_dumping || rank->is_raised ||
                     failed_before_stop(shim, event);
    rank->state = by_itself ? RANK_EXITED : RANK_STOPPED;
    /* A rank that was writing a core file keeps the signal that it died of: EXITED may say SIGKILL,
     * which ended the writing. A rank that raised an exception keeps exit code 1 unless it exited
     * with another code: EXITED may say how we killed it. */
    if (rank->is_raised ? event->code != 0 : !rank->is_dumping || rank->signal == 0) {
        rank->exit_code = event->code;
        rank->signal = event->signal;
    }
    rank->is_dumping = rank->is_raised = false;
    shim_change(shim);
    if (by_itself && (event->code != 0 || event->signal != 0)) {
        fail_by_exit(shim, event);
        shim_stop_peers(shim, event->now_us, actions);
    }
    if (shim_workers_are_gone(shim))
        shim_workers_gone(shim, event->now_us, !shim->has_failed && shim->stop_signal == 0,
                          actions);
    shim_end_if_over(shim, event->now_us);
}

static void on_store_exited(struct shim *shim, const struct shim_event *event,
                            struct shim_actions *actions)
{
    if (!shim->store_runs)
        return;
    shim->store_runs = false;
    if (shim_store_is_needed(shim, event->now_us)) {
        shim_fail(shim, event, event->code != 0 ? FAILURE_PROGRAM : FAILURE_NODE, -1,
                  "the c10d store of the job ended before its ranks: %s", event->text);
        shim_stop_peers(shim, event->now_us, actions);
    }
    shim_end_if_over(shim, event->now_us);
}

static void send_world(struct shim *shim, uint32_t local, struct shim_actions *actions)
{
    struct shim_rank *rank = &shim->ranks[local];
    if (!shim->has_world || !rank->joined || rank->world_sent || rank->state != RANK_RUNNING)
        return;
    rank->world_sent = true;
    shim_add(actions, (struct shim_action){.type = SHIM_SEND_WORLD, .local = local});
}

static void on_join(struct shim *shim, const struct shim_event *event, struct shim_actions *actions)
{
    const struct msg_worker_join *join = &event->msg->worker_join;
    struct shim_rank *rank = &shim->ranks[event->local];
    if (join->generation != shim->options.generation ||
        (int32_t)join->rank != global_rank(shim, event->local))
        return;
    if (rank->joined || rank->is_late || rank->state != RANK_RUNNING)
        return;
    rank->joined = true;
    shim_take_done(rank);
    if (join->rank == 0) {
        assert(join->blob.count <= BLOB_BYTES_MAX);
        if (join->blob.count > 0)
            memcpy(shim->blob_bytes, join->blob.items, join->blob.count);
        shim->blob = (struct msg_bytes){.items = shim->blob_bytes, .count = join->blob.count};
    }
    shim_change(shim);
    send_world(shim, event->local, actions);
}

static void on_worker_msg(struct shim *shim, const struct shim_event *event,
                          struct shim_actions *actions)
{
    const struct msg *msg = event->msg;
    assert(event->local < shim->options.local_count);
    if (msg->type == MSG_TYPE_WORKER_JOIN) {
        on_join(shim, event, actions);
    } else if (msg->type == MSG_TYPE_PROGRESS && msg->progress.job_id == shim->options.job_id &&
               msg->progress.generation == shim->options.generation &&
               (int32_t)msg->progress.rank == global_rank(shim, event->local)) {
        shim_progress_take(shim, event);
    }
}

static void on_go(struct shim *shim, const struct msg_go *go, struct shim_actions *actions)
{
    if (shim->phase != SHIM_READY || shim->go_taken)
        return;
    shim->go_taken = true;
    shim_add(actions, (struct shim_action){.type = SHIM_SPAWN_ALL,
                                           .text = go->master_addr,
                                           .port = go->master_port});
}

static void on_world(struct shim *shim, const struct msg_world *world, struct shim_actions *actions)
{
    if (shim->has_world)
        return;
    assert(world->blob.count <= BLOB_BYTES_MAX);
    shim->has_world = true;
    shim->world_byte_count = world->blob.count;
    if (world->blob.count > 0)
        memcpy(shim->world_bytes, world->blob.items, world->blob.count);
    shim_change(shim);
    for (uint32_t i = 0; i < shim->options.local_count; i++)
        send_world(shim, i, actions);
}

static bool is_ours(const struct shim *shim, uint64_t job_id, uint32_t generation)
{
    return job_id == shim->options.job_id && generation == shim->options.generation;
}

static void on_launcher_msg(struct shim *shim, const struct shim_event *event,
                            struct shim_actions *actions)
{
    const struct msg *msg = event->msg;

    if (msg->type == MSG_TYPE_REPORT_REQUEST && !msg->report_request.all) {
        shim_add(actions, (struct shim_action){.type = SHIM_SEND_HELLO});
    } else if (msg->type == MSG_TYPE_REPORT_REQUEST) {
        shim->acked = 0;
        shim->reported = 0;
        shim_progress_repeat(shim);
    } else if (msg->type == MSG_TYPE_GO && is_ours(shim, msg->go.job_id, msg->go.generation)) {
        on_go(shim, &msg->go, actions);
    } else if (msg->type == MSG_TYPE_WORLD &&
               is_ours(shim, msg->world.job_id, msg->world.generation)) {
        on_world(shim, &msg->world, actions);
    } else if (msg->type == MSG_TYPE_STOP &&
               is_ours(shim, msg->stop.job_id, msg->stop.generation)) {
        shim->store_released = true;
        shim_stop_gently(shim, event->now_us, msg->stop.signal, msg->stop.grace_us, actions);
    } else if (msg->type == MSG_TYPE_FORGET &&
               is_ours(shim, msg->forget.job_id, msg->forget.generation)) {
        shim->forgotten = true;
        shim_stop_now(shim, event->now_us, actions);
    } else if (msg->type == MSG_TYPE_REPORT_ACK &&
               is_ours(shim, msg->report_ack.job_id, msg->report_ack.generation)) {
        if (msg->report_ack.revision <= shim->revision && msg->report_ack.revision > shim->acked)
            shim->acked = msg->report_ack.revision;
    }
}

/* When a node has lost the server, it ends its workers at the end of its lease. The server restarts
 * the job elsewhere only after that, so two generations never run at the same time. */
static void check_lease(struct shim *shim, const struct shim_event *event,
                        struct shim_actions *actions)
{
    if (shim->lease_until_us == 0)
        shim->lease_until_us = event->now_us + shim->options.lease_us;
    if (shim->phase == SHIM_ENDED || shim->kill_at_us == UINT64_MAX ||
        event->now_us < shim->lease_until_us)
        return;
    shim->lease_over = true;
    shim_fail(shim, event, FAILURE_NETWORK, -1,
              "cut off from the server for longer than the lease (%llu s)",
              (unsigned long long)(shim->options.lease_us / 1000000));
    shim_stop_now(shim, event->now_us, actions);
    shim_end_if_over(shim, event->now_us);
    if (shim->launcher_open)
        shim_add(actions, (struct shim_action){.type = SHIM_SEND_HELLO});
}

/* Without launcherd nobody will say `forget`. An end on the disk needs no process: the next launcherd reads it there, as
 * after a crash. One that is only here is kept for longer. */
static uint64_t exit_at_us(const struct shim *shim)
{
    if (shim->is_recorded && !shim->launcher_open)
        return KEEP_RECORDED_US +
               (shim->alone_at_us > shim->ended_at_us ? shim->alone_at_us : shim->ended_at_us);
    uint64_t keep_us = 10 * shim->options.lease_us;
    if (keep_us < KEEP_AFTER_LEASE_US)
        keep_us = KEEP_AFTER_LEASE_US;
    uint64_t from_us =
        shim->lease_until_us > shim->ended_at_us ? shim->lease_until_us : shim->ended_at_us;
    return from_us + keep_us;
}

static void keep_end_if_due(struct shim *shim, struct shim_actions *actions)
{
    if (shim->phase != SHIM_ENDED || shim->end_ordered)
        return;
    shim->end_ordered = true;
    shim_add(actions, (struct shim_action){.type = SHIM_KEEP_END});
}

__attribute__((format(printf, 2, 3))) static void note(char out[REASON_BYTES_MAX],
                                                       const char *format, ...)
{
    va_list args;

    va_start(args, format);
    utf8_printable_format(out, REASON_BYTES_MAX, format, args);
    va_end(args);
}

static void on_tree_empty(struct shim *shim, const struct shim_event *event)
{
    shim->tree_empty = true;
    if (event->text != NULL)
        note(shim->lost, "output of job %llu is lost: %s", (unsigned long long)shim->options.job_id,
             event->text);
    shim_end_if_over(shim, event->now_us);
}

static void on_end_kept(struct shim *shim, const struct shim_event *event)
{
    assert(shim->end_ordered);
    shim->end_known = true;
    shim->is_recorded = event->text == NULL;
    if (event->text == NULL && shim->notice[0] == '\0')
        return;
    shim_change(shim);
    if (event->text == NULL)
        shim->notice[0] = '\0';
    else
        note(shim->notice, "the end of job %llu is not stored: %s",
             (unsigned long long)shim->options.job_id, event->text);
}

bool shim_may_report(const struct shim *shim)
{
    return shim->launcher_open && (shim->phase != SHIM_ENDED || shim->end_known);
}

static void report_if_due(struct shim *shim, uint64_t now_us, struct shim_actions *actions)
{
    bool is_news = shim->reported < shim->revision;
    bool is_due = shim->acked < shim->revision && now_us >= shim->report_at_us;
    if (!shim_may_report(shim) || (!is_news && !is_due))
        return;
    shim->reported = shim->revision;
    shim->report_at_us = now_us + REPORT_AGAIN_US;
    shim_add(actions, (struct shim_action){.type = SHIM_SEND_REPORT});
}

static void exit_if_done(struct shim *shim, uint64_t now_us, struct shim_actions *actions)
{
    if (!shim->end_known || shim->exit_ordered)
        return;
    if (!shim->forgotten && now_us < exit_at_us(shim))
        return;
    shim->exit_ordered = true;
    shim_add(actions, (struct shim_action){.type = SHIM_EXIT});
}

static uint64_t next_timer_us(const struct shim *shim)
{
    uint64_t at_us = UINT64_MAX;
    uint64_t candidates[] = {UINT64_MAX,
                             UINT64_MAX,
                             shim_stop_timer_us(shim),
                             UINT64_MAX,
                             shim_progress_timer_us(shim),
                             shim_store_timer_us(shim),
                             shim_warn_timer_us(shim),
                             shim_take_timer_us(shim)};

    if (shim_may_report(shim) && shim->acked < shim->revision)
        candidates[0] = shim->report_at_us;
    if (shim->phase != SHIM_ENDED && shim->kill_at_us != UINT64_MAX)
        candidates[1] = shim->lease_until_us;
    if (shim->end_known && !shim->exit_ordered)
        candidates[3] = exit_at_us(shim);
    for (uint32_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++)
        if (candidates[i] < at_us)
            at_us = candidates[i];
    return at_us;
}

static void on_event(struct shim *shim, const struct shim_event *event,
                     struct shim_actions *actions)
{
    switch (event->type) {
    case SHIM_EVENT_TICK:
        break;
    case SHIM_EVENT_START:
        on_start(shim, event, actions);
        break;
    case SHIM_EVENT_CANNOT_START:
        on_cannot_start(shim, event);
        break;
    case SHIM_EVENT_PORT:
        on_port(shim, event);
        break;
    case SHIM_EVENT_LAUNCHER_OPEN:
        shim->launcher_open = true;
        shim->alone_at_us = 0;
        shim->reported = 0;
        break;
    case SHIM_EVENT_LAUNCHER_CLOSED:
        shim->launcher_open = false;
        shim->alone_at_us = event->now_us;
        break;
    case SHIM_EVENT_LAUNCHER_MSG:
        on_launcher_msg(shim, event, actions);
        break;
    case SHIM_EVENT_SPAWNED:
        on_spawned(shim, event, actions);
        break;
    case SHIM_EVENT_TAKEN:
        assert(event->local < shim->options.local_count);
        shim_take_done(&shim->ranks[event->local]);
        break;
    case SHIM_EVENT_SPAWN_FAILED:
        on_spawn_failed(shim, event, actions);
        break;
    case SHIM_EVENT_EXITED:
        on_exited(shim, event, actions);
        break;
    case SHIM_EVENT_DUMPING:
        on_dumping(shim, event, actions);
        break;
    case SHIM_EVENT_RAISED:
        on_raised(shim, event, actions);
        break;
    case SHIM_EVENT_WORKER_MSG:
        on_worker_msg(shim, event, actions);
        break;
    case SHIM_EVENT_STORE_STARTED:
        shim->store_runs = true;
        break;
    case SHIM_EVENT_STORE_EXITED:
        on_store_exited(shim, event, actions);
        break;
    case SHIM_EVENT_STORE_UNREACHED:
        shim_store_unreached(shim, event, actions);
        break;
    case SHIM_EVENT_TREE_EMPTY:
        on_tree_empty(shim, event);
        break;
    case SHIM_EVENT_END_KEPT:
        on_end_kept(shim, event);
        break;
    }
}

static void check_ranks(const struct shim *shim)
{
    for (uint32_t i = 0; i < shim->options.local_count; i++) {
        const struct shim_rank *rank = &shim->ranks[i];
        assert(shim->go_taken || rank->state == RANK_WAITING);
        assert(rank->state != RANK_RUNNING || rank->pid != 0);
        assert(!rank->world_sent || (rank->joined && shim->has_world));
        if (shim->phase == SHIM_RUNNING)
            assert(rank->state != RANK_WAITING || rank->is_late);
        if (shim->phase == SHIM_ENDED)
            assert(rank->state != RANK_RUNNING);
    }
}

/* The invariants after each step. What launcherd or a worker sends can never fail them: messages
 * that contradict the state are ignored before they change it. */
static void check(const struct shim *shim, enum shim_phase phase_before, uint64_t lease_before_us)
{
    const int32_t first = (int32_t)shim->options.rank_base;
    assert(shim->phase >= phase_before && shim->lease_until_us >= lease_before_us);
    assert(shim->acked <= shim->revision && shim->reported <= shim->revision);
    assert(shim->blob.count <= BLOB_BYTES_MAX && shim->world_byte_count <= BLOB_BYTES_MAX);
    assert(shim->phase != SHIM_READY || first != 0 || shim->master_port != 0);
    assert((shim->phase != SHIM_RUNNING && shim->phase != SHIM_STOPPING) || shim->go_taken);
    assert(shim->kill_at_us == 0 || shim->phase >= SHIM_STOPPING);
    assert(!shim->exit_ordered || shim->phase == SHIM_ENDED);
    assert(shim->end_ordered == (shim->phase == SHIM_ENDED) &&
           (!shim->end_known || shim->end_ordered));
    assert(!shim->store_runs || (shim->go_taken && shim->phase != SHIM_ENDED));
    assert(shim->failed_rank == -1 ||
           (shim->has_failed && shim->failed_rank >= first &&
            shim->failed_rank < first + (int32_t)shim->options.local_count));
    check_ranks(shim);
}

void shim_step(struct shim *shim, const struct shim_event *event, struct shim_actions *actions)
{
    const enum shim_phase phase_before = shim->phase;
    const uint64_t lease_before_us = shim->lease_until_us;
    actions->count = 0;
    shim_lease_take(shim, event);
    check_lease(shim, event, actions);
    on_event(shim, event, actions);
    shim_check_grace(shim, event->now_us, actions);
    shim_store_check(shim, event->now_us, actions);
    shim_warn_check(shim, event->now_us, actions);
    shim_take_check(shim, event, actions);
    shim_progress_send(shim, event->now_us,
                       event->type == SHIM_EVENT_EXITED ? event->local : UINT32_MAX, actions);
    keep_end_if_due(shim, actions);
    report_if_due(shim, event->now_us, actions);
    exit_if_done(shim, event->now_us, actions);
    actions->timer_at_us = next_timer_us(shim);
    check(shim, phase_before, lease_before_us);
}
