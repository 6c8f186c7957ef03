#include "tests/unit/rendezvous/core_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"

struct rdzv *core;
struct rdzv_actions actions;
uint64_t now_us;
int64_t wall_ms;

static struct rdzv_options usual(uint32_t jobs_max, uint32_t nodes_max)
{
    return (struct rdzv_options){.jobs_max = jobs_max,
                                 .nodes_max = nodes_max,
                                 .lease_us = 60 * SECOND_US,
                                 .beat_interval_us = SECOND_US,
                                 .suspect_us = 5 * SECOND_US,
                                 .lost_us = 15 * SECOND_US,
                                 .grow_us = 60 * SECOND_US,
                                 .seed = 1,
                                 .id_gap = 10,
                                 .cluster = "test"};
}

static void begin_options(struct rdzv_options options)
{
    static void *memory;

    free(memory);
    memory = calloc(1, rdzv_bytes(&options));
    CHECK(memory != NULL);
    core = rdzv_init(memory, &options);
    now_us = 100 * SECOND_US;
    wall_ms = 1000;
}

void begin_with(uint32_t jobs_max, uint32_t nodes_max)
{
    begin_options(usual(jobs_max, nodes_max));
}

void begin_quotas(uint32_t jobs_max, uint32_t nodes_max, uint32_t max_slots, uint32_t max_queued)
{
    struct rdzv_options options = usual(jobs_max, nodes_max);

    options.max_slots_per_user = max_slots;
    options.max_queued_per_user = max_queued;
    begin_options(options);
}

void begin_store_quota(uint32_t jobs_max, uint32_t nodes_max, uint64_t max_stored)
{
    struct rdzv_options options = usual(jobs_max, nodes_max);

    options.max_stored_per_user = max_stored;
    begin_options(options);
}

void begin_preempting_quotas(uint32_t jobs_max, uint32_t nodes_max, uint32_t max_slots)
{
    struct rdzv_options options = usual(jobs_max, nodes_max);

    options.preempts = true;
    options.max_slots_per_user = max_slots;
    begin_options(options);
}

void begin_at(uint32_t jobs_max, uint32_t nodes_max, const char *boot_id)
{
    struct rdzv_options options = usual(jobs_max, nodes_max);

    (void)snprintf(options.boot_id, sizeof options.boot_id, "%s", boot_id);
    begin_options(options);
}

void begin_one_machine(uint32_t jobs_max, uint32_t nodes_max)
{
    struct rdzv_options options = usual(jobs_max, nodes_max);

    options.is_one_machine = true;
    begin_options(options);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
}

void begin_preempting(uint32_t jobs_max, uint32_t nodes_max)
{
    begin_preempting_quotas(jobs_max, nodes_max, 0);
}

void begin_leased_after(uint32_t jobs_max, uint32_t nodes_max, uint64_t lease_us,
                        uint64_t lease_before_us)
{
    struct rdzv_options options = usual(jobs_max, nodes_max);

    options.waits_for_lease = true;
    options.lease_us = lease_us;
    options.lease_before_us = lease_before_us;
    begin_options(options);
}

void begin_leased(uint32_t jobs_max, uint32_t nodes_max, uint64_t lease_us)
{
    begin_leased_after(jobs_max, nodes_max, lease_us, 0);
}

void begin_copy(uint32_t jobs_max, uint32_t nodes_max)
{
    struct rdzv_options options = usual(jobs_max, nodes_max);

    options.waits_for_lease = options.is_copy = true;
    options.lease_us = 60 * SECOND_US;
    begin_options(options);
}

void begin_unsure(uint32_t jobs_max, uint32_t nodes_max)
{
    struct rdzv_options options = usual(jobs_max, nodes_max);

    options.waits_for_lease = options.may_be_past = true;
    begin_options(options);
}

void begin_fenced(uint32_t jobs_max, uint32_t nodes_max)
{
    begin_leased(jobs_max, nodes_max, 60 * SECOND_US);
}

void step_unchecked(struct rdzv_event event)
{
    event.now_us = now_us;
    event.wall_ms = wall_ms;
    rdzv_step(core, &event, &actions);
}

void step(struct rdzv_event event)
{
    step_unchecked(event);
    rdzv_check(core);
}

struct rdzv_record keep_record(uint64_t job_id)
{
    static struct rdzv_part parts[8][8];
    static uint32_t kept;
    struct rdzv_record record = *rdzv_job_record(core, job_id);

    CHECK(record.part_count <= 8);
    for (uint32_t i = 0; i < record.part_count; i++)
        parts[kept % 8][i] = record.parts[i];
    record.parts = parts[kept++ % 8];
    return record;
}

uint32_t count_of(enum rdzv_action_type type)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < actions.count; i++)
        count += actions.items[i].type == type;
    return count;
}

const struct rdzv_action *find(enum rdzv_action_type type)
{
    for (uint32_t i = 0; i < actions.count; i++)
        if (actions.items[i].type == type)
            return &actions.items[i];
    return NULL;
}

bool says(const char *text)
{
    for (uint32_t i = 0; i < actions.count; i++)
        if (actions.items[i].type == RDZV_LOG_EVENT && strstr(actions.items[i].text, text) != NULL)
            return true;
    return false;
}

void step_node(uint64_t conn, const struct msg *msg)
{
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = conn, .msg = msg});
}

void step_hello(uint64_t conn, struct msg_node_hello hello)
{
    step_hello_at(conn, hello, NULL);
}

void step_hello_at(uint64_t conn, struct msg_node_hello hello, const char *called)
{
    struct msg msg = {.type = MSG_TYPE_NODE_HELLO, .node_hello = hello};

    msg.node_hello.protocol = PROTOCOL_VERSION;
    msg.node_hello.version = "1";
    if (hello.boot_id == NULL)
        msg.node_hello.boot_id = "b";
    if (hello.machine_id == NULL)
        msg.node_hello.machine_id = hello.name;
    if (hello.state_id == NULL)
        msg.node_hello.state_id = hello.name;
    if (hello.address == NULL)
        msg.node_hello.address = "127.0.0.1";
    step((struct rdzv_event){
        .type = RDZV_EVENT_NODE_MSG, .conn = conn, .msg = &msg, .text = called});
}

static uint64_t submit_as(struct msg_submit submit, const char *user, bool is_admin,
                          struct rdzv_stored stored)
{
    static const char *const argv[] = {"x"};
    static uint32_t serial;
    char request_id[REQUEST_ID_CHARS + 1];
    struct msg msg = {.type = MSG_TYPE_SUBMIT, .submit = submit};

    (void)snprintf(request_id, sizeof request_id, "%032u", ++serial);
    msg.submit.request_id = request_id;
    msg.submit.name = "job";
    if (submit.cwd == NULL)
        msg.submit.cwd = "/";
    msg.submit.argv = (struct msg_text_list){argv, 1};
    step((struct rdzv_event){.type = RDZV_EVENT_SUBMIT,
                             .client = 7,
                             .msg = &msg,
                             .user = user,
                             .is_admin = is_admin,
                             .stored = stored});
    return find(RDZV_REPLY_SUBMITTED) == NULL ? 0 : find(RDZV_REPLY_SUBMITTED)->job_id;
}

uint64_t step_submit_as(struct msg_submit submit, const char *user, bool is_admin)
{
    return submit_as(submit, user, is_admin, (struct rdzv_stored){0});
}

uint64_t step_submit_stored(struct msg_submit submit, const char *user, struct rdzv_stored stored)
{
    return submit_as(submit, user, false, stored);
}

uint64_t step_submit(struct msg_submit submit)
{
    return step_submit_as(submit, "ann", false);
}

void step_beat(uint64_t conn, const struct part_beat_shim *shims, uint32_t count)
{
    struct msg msg = {.type = MSG_TYPE_BEAT};

    msg.beat.sent_us = now_us;
    msg.beat.shims.items = shims;
    msg.beat.shims.count = count;
    step_node(conn, &msg);
}

void step_part_report(uint64_t conn, uint64_t job_id, uint32_t generation, enum shim_phase phase,
                      const struct part_report_rank *ranks, uint32_t count)
{
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};

    msg.shim_report = (struct msg_shim_report){.job_id = job_id,
                                               .generation = generation,
                                               .revision = 1,
                                               .phase = phase,
                                               .master_port = 4000,
                                               .failed_rank = -1,
                                               .cause = "",
                                               .tail = "",
                                               .error = "",
                                               .failed_core = ""};
    msg.shim_report.ranks.items = ranks;
    msg.shim_report.ranks.count = count;
    step_node(conn, &msg);
}

void step_rank_report(uint64_t conn, struct rank_report report)
{
    struct part_report_rank rank = {.rank = report.rank,
                                    .state = report.is_lost                 ? RANK_LOST
                                             : report.is_stopped            ? RANK_STOPPED
                                             : report.phase == SHIM_ENDED   ? RANK_EXITED
                                             : report.phase == SHIM_RUNNING ? RANK_RUNNING
                                                                            : RANK_WAITING,
                                    .exit_code = report.exit_code,
                                    .signal = report.signal,
                                    .joined = report.joined};
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT,
                      .shim_report = {.job_id = report.job_id,
                                      .generation = report.generation != 0 ? report.generation : 1,
                                      .revision = 1,
                                      .phase = report.phase,
                                      .master_port = 4000,
                                      .failed_rank = report.exit_code != 0 || report.signal != 0
                                                         ? (int32_t)report.rank
                                                         : -1,
                                      .failed_age_us = report.failed_age_us,
                                      .failed_errno_exit = (int32_t)report.errno_exit,
                                      .failed_class = report.failed_class,
                                      .cause = report.cause != NULL ? report.cause : "",
                                      .tail = report.tail != NULL ? report.tail : "",
                                      .error = report.error != NULL ? report.error : "",
                                      .failed_oom = report.error != NULL,
                                      .warm_late = report.warm_late,
                                      .failed_by_peer = report.by_peer,
                                      .has_world = report.has_world,
                                      .failed_core = ""}};

    msg.shim_report.ranks.items = &rank;
    msg.shim_report.ranks.count = 1;
    step_node(conn, &msg);
}
