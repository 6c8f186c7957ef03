#include "ddpctl/doctor_talk.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/io/mono.h"
#include "ddpctl/client.h"

#define ASKED_MAX 32u       /* most questions at a time; the server takes 64 of one client */
#define ANSWER_US 75000000u /* longer than the server waits for a node */
#define GREETING_US 10000000u

/* -- many questions -- */

struct talk {
    struct ctl *ctl;
    struct client client;
    struct doctor_ask *asks;
    uint32_t count, asked, answered;
    const char *note;
    int exit_code;
};

static void end(struct talk *talk, int exit_code)
{
    talk->exit_code = exit_code;
    client_close(&talk->client);
}

static void send_one(struct talk *talk, uint32_t i)
{
    struct doctor_ask *ask = &talk->asks[i];
    struct msg msg = {.type = MSG_TYPE_NODE_READ, .node_read = ask->read};
    struct err err = {0};

    msg.node_read.request_id = i;
    ask->is_sent = true;
    ask->sent_us = mono_us();
    ask->sent_ms = clock_wall_ms();
    talk->asked++;
    if (client_send(&talk->client, &msg, &err) != STATUS_OK)
        end(talk, ctl_fail_err(talk->ctl, CTL_FAILED, &err, ""));
}

static void send_more(struct talk *talk)
{
    for (uint32_t i = 0; i < talk->count && talk->asked < ASKED_MAX; i++)
        if (!talk->asks[i].is_sent && !talk->client.closing)
            send_one(talk, i);
    client_expect(&talk->client, ANSWER_US);
}

/* Also called after a lost connection: questions without an answer are sent again. */
static void on_open(struct client *client)
{
    struct talk *talk = client->owner;

    talk->asked = 0;
    for (uint32_t i = 0; i < talk->count; i++)
        talk->asks[i].is_sent = talk->asks[i].is_answered;
    send_more(talk);
}

static void take_answer(struct talk *talk, const struct msg_node_data *data)
{
    struct doctor_ask *ask = &talk->asks[data->request_id];

    ask->is_answered = true;
    ask->answered_us = mono_us();
    ask->node_ms = data->node_ms;
    ask->server_ms = data->server_ms;
    (void)snprintf(ask->problem, sizeof ask->problem, "%s", data->problem);
    if (data->problem[0] == '\0') {
        ask->json = malloc(data->bytes.count + 1u);
        if (ask->json == NULL) {
            (void)snprintf(ask->problem, sizeof ask->problem, "no memory for its answer");
        } else {
            memcpy(ask->json, data->bytes.items, data->bytes.count);
            ask->json_bytes = data->bytes.count;
        }
    }
    talk->asked--;
    talk->answered++;
}

static void show_progress(const struct talk *talk)
{
    char line[120];

    if (talk->note == NULL || !screen_has_line(&talk->ctl->screen))
        return;
    (void)snprintf(line, sizeof line, "%s: %u of %u", talk->note, talk->answered, talk->count);
    screen_line(&talk->ctl->screen, talk->answered < talk->count ? line : NULL);
}

static void on_message(struct client *client, const struct msg *msg)
{
    struct talk *talk = client->owner;

    if (msg->type == MSG_TYPE_ERROR) {
        end(talk, ctl_fail_answer(talk->ctl, &msg->error));
        return;
    }
    if (msg->type != MSG_TYPE_NODE_DATA || msg->node_data.request_id >= talk->count ||
        talk->asks[msg->node_data.request_id].is_answered) {
        end(talk, ctl_fail_unexpected(talk->ctl, msg));
        return;
    }
    take_answer(talk, &msg->node_data);
    show_progress(talk);
    if (talk->answered == talk->count)
        end(talk, CTL_OK);
    else
        send_more(talk);
}

static void on_failed(struct client *client, const struct err *err)
{
    struct talk *talk = client->owner;

    talk->exit_code = ctl_fail_server(talk->ctl, err);
}

static const struct client_handlers talk_handlers = {
    .on_open = on_open, .on_message = on_message, .on_failed = on_failed};

static void run(struct client *client, uv_loop_t *loop, const struct ctl *ctl,
                const struct client_handlers *handlers, void *owner)
{
    int rc;

    client_open(client, loop, &ctl->server, 0, handlers, owner);
    (void)uv_run(loop, UV_RUN_DEFAULT);
    rc = uv_loop_close(loop);
    assert(rc == 0); /* fails where a handle is still open */
    (void)rc;
}

int doctor_talk(struct ctl *ctl, struct doctor_ask *asks, uint32_t count, const char *note)
{
    struct talk talk = {
        .ctl = ctl, .asks = asks, .count = count, .note = note, .exit_code = CTL_FAILED};
    uv_loop_t loop;

    for (uint32_t i = 0; i < count; i++)
        talk.answered += asks[i].is_answered;
    if (talk.answered == count)
        return CTL_OK;
    if (uv_loop_init(&loop) != 0)
        return ctl_fail(ctl, CTL_FAILED, "no event loop: out of files or memory", "");
    run(&talk.client, &loop, ctl, &talk_handlers, &talk);
    screen_line(&ctl->screen, NULL);
    return talk.exit_code;
}

void doctor_asks_free(struct doctor_ask *asks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        free(asks[i].json);
    free(asks);
}

/* -- the greeting -- */

struct greeting {
    struct doctor_greeting *found;
    struct client client;
    uint64_t sent_us;
};

static void on_greeting_open(struct client *client)
{
    client_expect(client, GREETING_US);
}

/* The round trip is measured from here, so it does not include connecting and the handshake. */
static void on_welcome(struct client *client, const struct msg_client_welcome *welcome)
{
    struct greeting *greeting = client->owner;
    struct doctor_greeting *found = greeting->found;
    struct msg msg = {.type = MSG_TYPE_EVENT_LIST, .event_list = {.limit = 1}};
    struct err err = {0};

    (void)snprintf(found->version, sizeof found->version, "%s", welcome->version);
    found->protocol = welcome->protocol > 0 ? welcome->protocol : 1;
    (void)snprintf(found->cluster, sizeof found->cluster, "%s", welcome->cluster);
    greeting->sent_us = mono_us();
    (void)client_send(client, &msg, &err);
    client_expect(client, GREETING_US);
}

static void on_greeting(struct client *client, const struct msg *msg)
{
    struct greeting *greeting = client->owner;

    greeting->found->round_trip_us = mono_us() - greeting->sent_us;
    if (msg->type == MSG_TYPE_ERROR) {
        greeting->found->is_refused = true;
        (void)err_set(&greeting->found->err, STATUS_REFUSED, 0, "%s", msg->error.message);
        (void)snprintf(greeting->found->hint, sizeof greeting->found->hint, "%s", msg->error.hint);
    }
    client_close(client);
}

static void on_greeting_failed(struct client *client, const struct err *err)
{
    struct greeting *greeting = client->owner;

    greeting->found->err = *err;
}

static const struct client_handlers greeting_handlers = {.on_open = on_greeting_open,
                                                         .on_message = on_greeting,
                                                         .on_welcome = on_welcome,
                                                         .on_failed = on_greeting_failed};

void doctor_greet(struct ctl *ctl, struct doctor_greeting *greeting)
{
    struct greeting state = {.found = greeting};
    uv_loop_t loop;

    *greeting = (struct doctor_greeting){.round_trip_us = 0};
    if (uv_loop_init(&loop) != 0)
        (void)err_set(&greeting->err, STATUS_MEMORY, 0, "no event loop: out of files or memory");
    else
        run(&state.client, &loop, ctl, &greeting_handlers, &state);
}
