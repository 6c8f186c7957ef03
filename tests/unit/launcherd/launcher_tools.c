#include "tests/unit/launcherd/launcher_tools.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

struct launcher launcher;
struct launcher_actions actions;
char trace[8192];

static void describe_msg(const struct msg *msg, char *out, size_t out_bytes)
{
    if (msg->type == MSG_TYPE_SHIM_REPORT)
        (void)snprintf(out, out_bytes, "shim_report(%llu.%u %s)",
                       (unsigned long long)msg->shim_report.job_id, msg->shim_report.generation,
                       shim_phase_name(msg->shim_report.phase));
    else if (msg->type == MSG_TYPE_BEAT)
        (void)snprintf(out, out_bytes, "beat(%u%s)", msg->beat.shims.count,
                       msg->beat.leaving ? " leaving" : "");
    else if (msg->type == MSG_TYPE_NODE_HELLO)
        (void)snprintf(out, out_bytes, "hello(%u)", msg->node_hello.shims.count);
    else if (msg->type == MSG_TYPE_LEASE)
        (void)snprintf(out, out_bytes, "lease(%llu)", (unsigned long long)msg->lease.until_us);
    else
        (void)snprintf(out, out_bytes, "%s", msg_type_name(msg->type));
}

static void describe(const struct launcher_action *action, char *out, size_t out_bytes)
{
    static const char *const names[] = {[LAUNCHER_CONNECT_SERVER] = "connect",
                                        [LAUNCHER_CLOSE_SERVER] = "close",
                                        [LAUNCHER_SPAWN_SHIM] = "spawn",
                                        [LAUNCHER_SPAWN_AGAIN] = "spawn-again",
                                        [LAUNCHER_CONNECT_SHIM] = "connect",
                                        [LAUNCHER_KILL_SHIM] = "kill",
                                        [LAUNCHER_LOOK_SHIM] = "look",
                                        [LAUNCHER_SIGNAL_RANKS] = "signal",
                                        [LAUNCHER_REMOVE] = "remove",
                                        [LAUNCHER_END] = "end",
                                        [LAUNCHER_LEFT] = "left",
                                        [LAUNCHER_SAVE_SEEN] = "",
                                        [LAUNCHER_LOG] = ""};
    char text[128];
    unsigned long long job = action->job_id;

    if (action->type == LAUNCHER_SEND_SERVER) {
        describe_msg(&action->msg, out, out_bytes);
    } else if (action->type == LAUNCHER_SEND_SHIM) {
        describe_msg(&action->msg, text, sizeof text);
        (void)snprintf(out, out_bytes, "%llu.%u<%s", job, action->generation, text);
    } else if (action->type == LAUNCHER_ASK_GPU) {
        (void)snprintf(out, out_bytes, "ask(%u)", action->slot);
    } else if (action->type == LAUNCHER_SAVE_SLOTS) {
        (void)snprintf(out, out_bytes, "save(%u)", action->slots->count);
    } else if (job != 0) {
        (void)snprintf(out, out_bytes, "%s(%llu.%u)", names[action->type], job, action->generation);
    } else {
        (void)snprintf(out, out_bytes, "%s", names[action->type]);
    }
}

/* The actions of one event, as text, without the lines of the log. */
const char *step(uint64_t now_us, struct launcher_event event)
{
    event.now_us = now_us;
    launcher_step(&launcher, &event, &actions);
    trace[0] = '\0';
    for (uint32_t i = 0; i < actions.count; i++) {
        char text[192];
        describe(&actions.items[i], text, sizeof text);
        size_t used = strlen(trace);
        const char *space = text[0] != '\0' && used > 0 ? " " : "";
        (void)snprintf(trace + used, sizeof trace - used, "%s%s", space, text);
    }
    return trace;
}

const char *event(uint64_t now_us, enum launcher_event_type type)
{
    return step(now_us, (struct launcher_event){.type = type});
}

const char *server(uint64_t now_us, const struct msg *msg)
{
    return step(now_us, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_MSG, .msg = msg});
}

const char *shim_event(uint64_t now_us, enum launcher_event_type type, uint64_t job_id,
                       uint32_t generation, const struct msg *msg, const char *text)
{
    return step(
        now_us,
        (struct launcher_event){
            .type = type, .job_id = job_id, .generation = generation, .msg = msg, .text = text});
}

const char *welcome(uint64_t now_us, const char *cluster)
{
    struct msg msg = {.type = MSG_TYPE_NODE_WELCOME};
    msg.node_welcome = (struct msg_node_welcome){
        .cluster = cluster, .beat_interval_us = BEAT_US, .lease_us = LEASE_US};
    return server(now_us, &msg);
}

const char *beat_ack(uint64_t now_us, uint64_t sent_us)
{
    struct msg msg = {.type = MSG_TYPE_BEAT_ACK};
    msg.beat_ack.sent_us = sent_us;
    return server(now_us, &msg);
}

const char *start(uint64_t now_us, uint64_t job_id, uint32_t generation, uint64_t slot_mask)
{
    struct msg msg = {.type = MSG_TYPE_START};
    msg.start = (struct msg_start){.cluster = "one",
                                   .job_id = job_id,
                                   .generation = generation,
                                   .local_count = (uint32_t)__builtin_popcountll(slot_mask),
                                   .world = 4,
                                   .grace_us = JOB_GRACE_US,
                                   .slot_mask = slot_mask};
    return server(now_us, &msg);
}

const char *order(uint64_t now_us, enum msg_type type, uint64_t job_id, uint32_t generation)
{
    struct msg msg = {.type = type};
    if (type == MSG_TYPE_FORGET)
        msg.forget = (struct msg_forget){.job_id = job_id, .generation = generation};
    else if (type == MSG_TYPE_STOP)
        msg.stop = (struct msg_stop){.job_id = job_id, .generation = generation, .signal = 15};
    else if (type == MSG_TYPE_GO)
        msg.go = (struct msg_go){.job_id = job_id, .generation = generation};
    else if (type == MSG_TYPE_REPORT_ACK)
        msg.report_ack = (struct msg_report_ack){
            .job_id = job_id, .generation = generation, .revision = UINT32_MAX};
    return server(now_us, &msg);
}

const char *shim_open(uint64_t now_us, uint64_t job_id, uint32_t generation, enum shim_phase phase)
{
    struct msg msg = {.type = MSG_TYPE_SHIM_HELLO};
    msg.shim_hello.phase = phase;
    return shim_event(now_us, LAUNCHER_EVENT_SHIM_OPEN, job_id, generation, &msg, NULL);
}

const char *shim_reports(uint64_t now_us, uint64_t job_id, uint32_t generation,
                         enum shim_phase phase)
{
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};
    msg.shim_report = (struct msg_shim_report){
        .job_id = job_id, .generation = generation, .revision = 3, .phase = phase};
    return shim_event(now_us, LAUNCHER_EVENT_SHIM_MSG, job_id, generation, &msg, NULL);
}

const char *adopt(uint64_t job_id, const char *cluster, bool alive, const struct msg *end)
{
    struct launcher_shim shim = {
        .job_id = job_id, .generation = 1, .slot_mask = 1ull << job_id, .local_count = 1};
    (void)snprintf(shim.cluster, sizeof shim.cluster, "%s", cluster);
    return step(1, (struct launcher_event){.type = LAUNCHER_EVENT_ADOPT,
                                           .job_id = job_id,
                                           .generation = 1,
                                           .shim = &shim,
                                           .alive = alive,
                                           .msg = end,
                                           .text = "ended while launcherd was away"});
}

void begin(void)
{
    struct launcher_options options = {.name = "node0",
                                       .protocol = PROTOCOL_VERSION,
                                       .boot_id = "b",
                                       .address = "127.0.0.1",
                                       .slots = 8,
                                       .seed = 1,
                                       .gpu_timeout_us = LAUNCHER_GPU_TIMEOUT_US};
    launcher_init(&launcher, &options);
}

void connected(void)
{
    begin();
    CHECK_STR(event(1, LAUNCHER_EVENT_ADOPTED), "connect");
    CHECK_STR(event(2, LAUNCHER_EVENT_SERVER_OPEN), "hello(0)");
    CHECK_STR(welcome(3, "one"), "beat(0)");
}

/* A shim of job 1, generation 1, on slots 0 and 1. */
void with_shim(void)
{
    connected();
    CHECK_STR(start(10, 1, 1, 3), "spawn(1.1)");
    shim_open(11, 1, 1, SHIM_READY);
}
