/* Handshakes, heartbeats and submits. Each mode holds its connections in one epoll set. */
#include "tests/bench/load.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/arena.h"

#define OPENING_MAX 6u /* handshakes at a time: of one source a server takes 8 */

static void watch(struct crowd *crowd, struct line *line, int how)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = line}};

    if (caller_is_full(&line->caller))
        event.events |= EPOLLOUT;
    if (epoll_ctl(crowd->epoll, how, line->caller.fd, &event) < 0)
        load_fail("epoll_ctl");
}

static enum status say_hello(struct crowd *crowd, struct line *line, struct err *err)
{
    char name[32];
    struct msg msg = {.type = MSG_TYPE_CLIENT_HELLO,
                      .client_hello = {.protocol = PROTOCOL_VERSION, .version = "load"}};

    if (crowd->as_nodes) {
        msg = (struct msg){.type = MSG_TYPE_NODE_HELLO};
        msg.node_hello.protocol = PROTOCOL_VERSION;
        msg.node_hello.version = "load";
        msg.node_hello.name = load_name(crowd->load, line->index, name);
        msg.node_hello.boot_id = "boot";
        msg.node_hello.instance = line->index + 1;
        msg.node_hello.pid = 1;
        msg.node_hello.address = "127.0.0.1";
        msg.node_hello.slots = 8;
    }
    return caller_send(&line->caller, &msg, err);
}

static void open_line(struct crowd *crowd, struct line *line)
{
    struct err err;

    if (caller_open(&line->caller, &crowd->load->place, load_context(crowd->load, line->index),
                    &err) != STATUS_OK)
        load_fail("connection %u: %s", line->index, err.text);
    crowd->opened++;
    line->is_greeted = line->is_waiting = false;
    if (caller_is_ready(&line->caller) && say_hello(crowd, line, &err) != STATUS_OK)
        load_fail("connection %u: %s", line->index, err.text);
    watch(crowd, line, EPOLL_CTL_ADD);
}

void crowd_open(struct crowd *crowd, struct load *load, uint32_t count, uint32_t asked_max)
{
    crowd->load = load;
    crowd->count = count;
    crowd->asked_max = asked_max;
    crowd->lines = calloc(count, sizeof *crowd->lines);
    crowd->times_us = calloc(asked_max + 1, sizeof *crowd->times_us);
    crowd->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (crowd->lines == NULL || crowd->times_us == NULL || crowd->epoll < 0)
        load_fail("no memory");
    for (uint32_t i = 0; i < count; i++) {
        crowd->lines[i].index = i;
        crowd->lines[i].caller.fd = -1;
    }
}

void crowd_close(struct crowd *crowd)
{
    for (uint32_t i = 0; i < crowd->count; i++)
        caller_close(&crowd->lines[i].caller);
    (void)close(crowd->epoll);
    free(crowd->lines);
    free(crowd->times_us);
}

static void lose(struct crowd *crowd, struct line *line, const char *why)
{
    if (crowd->lost++ < 3)
        (void)fprintf(stderr, "load: connection %u: %s\n", line->index, why);
    crowd->greeted -= line->is_greeted;
    caller_close(&line->caller);
}

static bool is_type(const char *json, size_t byte_count, const char *type)
{
    char head[64];
    int n = snprintf(head, sizeof head, "{\"type\":\"%s\"", type);

    return byte_count >= (size_t)n && memcmp(json, head, (size_t)n) == 0;
}

static void on_answer(struct crowd *crowd, struct line *line, const char *json, size_t byte_count)
{
    if (is_type(json, byte_count, "error"))
        load_fail("connection %u: %.*s", line->index, (int)byte_count, json);
    if (!line->is_greeted) {
        line->is_greeted = true;
        crowd->greeted++;
    } else if (line->is_waiting && !is_type(json, byte_count, "node_welcome")) {
        line->is_waiting = false;
        if (crowd->answered < crowd->asked_max)
            crowd->times_us[crowd->answered] = (uint32_t)(load_now_us() - line->asked_us);
        crowd->answered++;
    } else if (crowd->on_order != NULL) {
        crowd->on_order(crowd, line, json, byte_count);
    }
}

static void serve(struct crowd *crowd, struct line *line)
{
    bool was_ready = caller_is_ready(&line->caller);
    struct err err = {.text = ""};
    const char *json;
    size_t byte_count;
    enum status status;

    status = caller_flush(&line->caller, &err);
    if (status == STATUS_OK)
        status = caller_receive(&line->caller, &err);
    if (status == STATUS_OK && !was_ready && caller_is_ready(&line->caller))
        status = say_hello(crowd, line, &err);
    while (line->caller.fd >= 0 && caller_next(&line->caller, &json, &byte_count)) {
        on_answer(crowd, line, json, byte_count);
        caller_drop(&line->caller, byte_count);
    }
    if (status != STATUS_OK)
        lose(crowd, line, err.text);
    else
        watch(crowd, line, EPOLL_CTL_MOD);
}

/* One round of epoll, for at most `wait_ms`. */
void crowd_turn(struct crowd *crowd, int wait_ms)
{
    struct epoll_event events[256];
    int n = epoll_wait(crowd->epoll, events, 256, wait_ms);

    for (int i = 0; i < n; i++)
        serve(crowd, events[i].data.ptr);
}

void crowd_ask(struct crowd *crowd, struct line *line, const struct msg *msg)
{
    struct err err;

    line->is_waiting = true;
    line->asked_us = load_now_us();
    crowd->asked++;
    if (caller_send(&line->caller, msg, &err) != STATUS_OK)
        lose(crowd, line, err.text);
    else if (caller_is_full(&line->caller))
        watch(crowd, line, EPOLL_CTL_MOD);
}

void crowd_tell(struct crowd *crowd, struct line *line, const struct msg *msg)
{
    struct err err;

    if (caller_send(&line->caller, msg, &err) != STATUS_OK)
        lose(crowd, line, err.text);
    else if (caller_is_full(&line->caller))
        watch(crowd, line, EPOLL_CTL_MOD);
}

/* -- handshakes -- */

void load_handshakes(struct load *load, uint32_t seconds, uint32_t at_a_time)
{
    struct crowd crowd = {0};
    uint64_t begin_us = load_now_us(), end_us = begin_us + seconds * UINT64_C(1000000);
    uint64_t done = 0;

    crowd_open(&crowd, load, at_a_time, 0);
    for (uint32_t i = 0; i < at_a_time; i++)
        open_line(&crowd, &crowd.lines[i]);
    while (load_now_us() < end_us && crowd.lost == 0) {
        crowd_turn(&crowd, 1000);
        for (uint32_t i = 0; i < at_a_time; i++) {
            if (!crowd.lines[i].is_greeted)
                continue;
            done++;
            caller_close(&crowd.lines[i].caller);
            open_line(&crowd, &crowd.lines[i]);
        }
    }
    printf("{\"mode\":\"handshakes\",\"count\":%llu,\"per_s\":%.1f,\"lost\":%u}\n",
           (unsigned long long)done, (double)done * 1e6 / (double)(load_now_us() - begin_us),
           crowd.lost);
    crowd_close(&crowd);
}

/* -- heartbeats -- */

void crowd_greet(struct crowd *crowd)
{
    uint64_t begin_us = load_now_us();

    while (crowd->greeted + crowd->lost < crowd->count) {
        while (crowd->opened < crowd->count &&
               crowd->opened - crowd->greeted - crowd->lost < OPENING_MAX)
            open_line(crowd, &crowd->lines[crowd->opened]);
        crowd_turn(crowd, 1000);
        if (load_now_us() - begin_us > UINT64_C(300000000))
            load_fail("%u of %u connections after 300 s", crowd->greeted, crowd->count);
    }
}

static void beat(struct crowd *crowd, struct line *line)
{
    struct msg msg = {.type = MSG_TYPE_EVENT_LIST,
                      .event_list = {.after_id = UINT32_MAX, .limit = 1}}; /* there is none */

    if (crowd->as_nodes)
        msg = (struct msg){.type = MSG_TYPE_BEAT, .beat = {.sent_us = load_now_us()}};
    crowd_ask(crowd, line, &msg);
}

/* Connection i beats at i / count of each second. The driver measures the server between the lines
 * "connected" and "done". */
void load_beats(struct load *load, uint32_t count, uint32_t seconds, bool as_nodes)
{
    struct crowd crowd = {.as_nodes = as_nodes};
    uint64_t begin_us = load_now_us(), open_us, start_us;
    uint64_t next = 0, total = (uint64_t)count * seconds,
             late = 0; /* beats without an answer in time */

    crowd_open(&crowd, load, count, (uint32_t)total);
    crowd_greet(&crowd);
    open_us = load_now_us() - begin_us;
    load_mark("connected");
    start_us = load_now_us();
    while (next < total || load_now_us() - start_us < (seconds + 1) * UINT64_C(1000000)) {
        uint64_t now_us = load_now_us() - start_us;

        for (; next < total && next * 1000000 / count <= now_us; next++) {
            struct line *line = &crowd.lines[next % count];

            if (line->caller.fd < 0)
                continue;
            if (line->is_waiting)
                late++;
            else
                beat(&crowd, line);
        }
        crowd_turn(&crowd, 1);
    }
    late += crowd.asked - crowd.answered;
    load_mark("done");
    printf("{\"mode\":\"%s\",\"connections\":%u,\"connect_s\":%.2f,\"seconds\":%u,"
           "\"answered\":%u,\"unanswered\":%llu,\"lost\":%u",
           as_nodes ? "nodes" : "clients", count, (double)open_us / 1e6, seconds, crowd.answered,
           (unsigned long long)late, crowd.lost);
    load_print_times("round_trip", crowd.times_us, crowd.answered);
    printf("}\n");
    crowd_close(&crowd);
}

/* -- submits -- */

static void submit(struct crowd *crowd, struct line *line)
{
    static const char *argv[] = {"/bin/true"};
    static uint64_t run;
    char request[REQUEST_ID_CHARS + 1];
    struct msg msg = {.type = MSG_TYPE_SUBMIT};

    if (run == 0)
        run = load_now_us();
    (void)snprintf(request, sizeof request, "%016llx%016x", (unsigned long long)run, crowd->asked);
    msg.submit.request_id = request;
    msg.submit.name = "load";
    msg.submit.nodes = msg.submit.nproc_per_node = 1;
    msg.submit.cwd = "/";
    msg.submit.argv = (struct msg_text_list){.items = argv, .count = 1};
    crowd_ask(crowd, line, &msg);
}

void load_submits(struct load *load, uint32_t count, uint32_t clients)
{
    struct crowd crowd = {0};
    uint64_t begin_us, us;

    crowd_open(&crowd, load, clients, count);
    crowd_greet(&crowd);
    begin_us = load_now_us();
    while (crowd.answered < count && crowd.lost == 0) {
        for (uint32_t i = 0; i < clients && crowd.asked < count; i++)
            if (!crowd.lines[i].is_waiting && crowd.lines[i].caller.fd >= 0)
                submit(&crowd, &crowd.lines[i]);
        crowd_turn(&crowd, 1000);
    }
    us = load_now_us() - begin_us;
    printf("{\"mode\":\"submits\",\"count\":%u,\"clients\":%u,\"lost\":%u,\"per_s\":%.1f",
           crowd.answered, clients, crowd.lost, crowd.answered * 1e6 / (double)us);
    load_print_times("answer", crowd.times_us, crowd.answered);
    printf("}\n");
    crowd_close(&crowd);
}
