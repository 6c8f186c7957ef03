#include "tests/unit/launcherd/shim_tools.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

struct shim shim;
struct shim_actions actions;
bool disk_hangs;
static char trace[4096];

static const char *action_text(const struct shim_action *action)
{
    static char text[128];
    switch (action->type) {
    case SHIM_RESERVE_PORT:
        return "port";
    case SHIM_SPAWN_ALL:
        (void)snprintf(text, sizeof text, "spawn(%s:%u)", action->text, action->port);
        return text;
    case SHIM_KILL_ONE:
        (void)snprintf(text, sizeof text, "kill-one(%u)", action->local);
        return text;
    case SHIM_SPAWN_ONE:
        (void)snprintf(text, sizeof text, "spawn-one(%u)", action->local);
        return text;
    case SHIM_SIGNAL:
        (void)snprintf(text, sizeof text, "signal(%u)", action->signal);
        return text;
    case SHIM_SIGNAL_LATE:
        (void)snprintf(text, sizeof text, "late(%u)", action->signal);
        return text;
    case SHIM_WARN:
        (void)snprintf(text, sizeof text, "warn(%u)", action->signal);
        return text;
    case SHIM_SIGNAL_LEFT:
        (void)snprintf(text, sizeof text, "left(%u%s)", action->signal,
                       action->is_told ? ", told" : "");
        return text;
    case SHIM_KILL_TREE:
        return action->is_told ? "kill(told)" : "kill";
    case SHIM_CHECK_TREE:
        return "check";
    case SHIM_SEND_REPORT:
        (void)snprintf(text, sizeof text, "report(%s)", shim_phase_name(shim.phase));
        return text;
    case SHIM_SEND_PROGRESS:
        return "progress";
    case SHIM_SEND_WORLD:
        (void)snprintf(text, sizeof text, "world(%u)", action->local);
        return text;
    case SHIM_END_STORE:
        return "end-store";
    case SHIM_SEND_HELLO:
        return "hello";
    case SHIM_KEEP_END:
        return "keep-end";
    case SHIM_EXIT:
        return "exit";
    }
    return "?";
}

static void add_text(const char *text)
{
    const size_t used = strlen(trace);

    (void)snprintf(trace + used, sizeof trace - used, "%s%s", used > 0 ? " " : "", text);
}

const char *step(uint64_t now_us, struct shim_event event)
{
    struct shim_event kept = {.type = SHIM_EVENT_END_KEPT, .now_us = now_us};
    bool keeps_end = false;

    event.now_us = now_us;
    shim_step(&shim, &event, &actions);
    trace[0] = '\0';
    for (uint32_t i = 0; i < actions.count; i++) {
        keeps_end = keeps_end || actions.items[i].type == SHIM_KEEP_END;
        if (disk_hangs || actions.items[i].type != SHIM_KEEP_END)
            add_text(action_text(&actions.items[i]));
    }
    if (!keeps_end || disk_hangs)
        return trace;
    shim_step(&shim, &kept, &actions);
    for (uint32_t i = 0; i < actions.count; i++)
        add_text(action_text(&actions.items[i]));
    return trace;
}

const char *event(uint64_t now_us, enum shim_event_type type)
{
    return step(now_us, (struct shim_event){.type = type});
}

const char *message(uint64_t now_us, struct msg *msg)
{
    return step(now_us, (struct shim_event){.type = SHIM_EVENT_LAUNCHER_MSG, .msg = msg});
}

const char *spawned(uint64_t now_us, uint32_t local)
{
    return step(now_us, (struct shim_event){
                            .type = SHIM_EVENT_SPAWNED, .local = local, .pid = 100 + local});
}

const char *exited(uint64_t now_us, uint32_t local, int32_t code, uint32_t signal)
{
    return step(
        now_us,
        (struct shim_event){
            .type = SHIM_EVENT_EXITED, .local = local, .code = code, .signal = signal, .text = ""});
}

const char *go(uint64_t now_us, uint32_t generation)
{
    struct msg msg = {.type = MSG_TYPE_GO};
    msg.go = (struct msg_go){
        .job_id = 7, .generation = generation, .master_addr = "10.0.0.1", .master_port = 4711};
    return message(now_us, &msg);
}

const char *stop(uint64_t now_us, uint32_t signal, uint64_t grace_us)
{
    struct msg msg = {.type = MSG_TYPE_STOP};
    msg.stop = (struct msg_stop){
        .job_id = 7, .generation = 2, .signal = signal, .grace_us = grace_us, .reason = ""};
    return message(now_us, &msg);
}

const char *forget(uint64_t now_us)
{
    struct msg msg = {.type = MSG_TYPE_FORGET};
    msg.forget = (struct msg_forget){.job_id = 7, .generation = 2};
    return message(now_us, &msg);
}

const char *ack(uint64_t now_us, uint32_t revision)
{
    struct msg msg = {.type = MSG_TYPE_REPORT_ACK};
    msg.report_ack = (struct msg_report_ack){.job_id = 7, .generation = 2, .revision = revision};
    return message(now_us, &msg);
}

struct msg_shim_report report(uint64_t now_us)
{
    static struct part_report_rank ranks[SLOTS_PER_NODE_MAX];
    struct msg_shim_report out;
    shim_report(&shim, now_us, ranks, &out);
    return out;
}

void begin(uint32_t rank_base, uint32_t local_count)
{
    struct shim_options options = {
        .job_id = 7,
        .generation = 2,
        .rank_base = rank_base,
        .local_count = local_count,
        .world = rank_base + local_count,
        .node_count = 1,
        .grace_us = GRACE_US,
        .lease_until_us = LEASE_US,
        .lease_us = LEASE_US,
    };
    shim_init(&shim, &options);
}

/* Ready, with launcherd connected and the port reserved. */
void ready(uint32_t local_count)
{
    begin(0, local_count);
    CHECK_STR(event(1, SHIM_EVENT_START), "port");
    CHECK_STR(step(2, (struct shim_event){.type = SHIM_EVENT_PORT, .port = 5000}), "");
    CHECK_STR(event(3, SHIM_EVENT_LAUNCHER_OPEN), "report(ready)");
}

void running(uint32_t local_count)
{
    ready(local_count);
    CHECK_STR(go(4, 2), "spawn(10.0.0.1:4711)");
    for (uint32_t i = 0; i < local_count; i++)
        spawned(5, i);
    CHECK_EQ(shim.phase, SHIM_RUNNING);
}
