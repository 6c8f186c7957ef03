#include "ddpctl/stage_send.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ddpctl/client.h"

#define ANSWER_TIMEOUT_US 30000000u
#define ANSWER_LEAST_US 1000000u /* a piece takes a moment, however short --patience is */
#define STALLS_MAX 20u           /* pieces in a row that the server does not take */

struct sending {
    struct ctl *ctl;
    const struct stage_packed *packed;
    struct client client;
    uint8_t *chunk;  /* [STAGE_CHUNK_BYTES_MAX] */
    uint64_t have;   /* what the server has, by its last answer */
    uint32_t stalls; /* answers in a row with which it had no more */
    int exit_code;
};

/* How long one answer may take: a silent server must not outlast --patience. */
static uint64_t answer_timeout_us(uint64_t patience_us)
{
    if (patience_us < ANSWER_LEAST_US)
        return ANSWER_LEAST_US;
    return patience_us < ANSWER_TIMEOUT_US ? patience_us : ANSWER_TIMEOUT_US;
}

/* Sends the piece at `offset`. Without bytes it only asks how much the server has. */
static void send_piece(struct sending *sending, uint64_t offset, size_t byte_count)
{
    struct msg msg = {.type = MSG_TYPE_STAGE_PUT};
    struct err err = {0};
    ssize_t got =
        byte_count > 0 ? pread(sending->packed->fd, sending->chunk, byte_count, (off_t)offset) : 0;

    assert(got == (ssize_t)byte_count); /* the file is in memory, and only we have it */
    (void)got;
    msg.stage_put = (struct msg_stage_put){
        .hash = sending->packed->hash,
        .total = sending->packed->byte_count,
        .offset = offset,
        .bytes = {.items = sending->chunk, .count = (uint32_t)byte_count},
    };
    if (client_send(&sending->client, &msg, &err) != STATUS_OK) {
        sending->exit_code = ctl_fail_err(sending->ctl, CTL_FAILED, &err, "");
        client_close(&sending->client);
        return;
    }
    client_expect(&sending->client, answer_timeout_us(sending->ctl->options.patience_us));
}

static void on_open(struct client *client)
{
    send_piece(client->owner, 0, 0);
}

static void on_message(struct client *client, const struct msg *msg)
{
    struct sending *sending = client->owner;
    const struct msg_stage_state *state = &msg->stage_state;
    uint64_t left;

    if (msg->type == MSG_TYPE_STAGE_STATE) {
        sending->stalls = state->have > sending->have ? 0 : sending->stalls + 1;
        sending->have = state->have;
    }
    if (msg->type == MSG_TYPE_STAGE_STATE && !state->is_complete &&
        state->have < sending->packed->byte_count && sending->stalls < STALLS_MAX) {
        left = sending->packed->byte_count - state->have;
        send_piece(sending, state->have,
                   left < STAGE_CHUNK_BYTES_MAX ? (size_t)left : STAGE_CHUNK_BYTES_MAX);
        return;
    }
    if (msg->type == MSG_TYPE_STAGE_STATE && state->is_complete)
        sending->exit_code = CTL_OK;
    else if (msg->type == MSG_TYPE_STAGE_STATE && sending->stalls == STALLS_MAX)
        sending->exit_code =
            ctl_fail(sending->ctl, CTL_FAILED,
                     "the server takes nothing of what is sent for --stage", "its log says why");
    else if (msg->type == MSG_TYPE_ERROR)
        sending->exit_code = ctl_fail_answer(sending->ctl, &msg->error);
    else
        sending->exit_code = ctl_fail_unexpected(sending->ctl, msg);
    client_close(client);
}

static void on_waiting(struct client *client, const struct err *err)
{
    struct sending *sending = client->owner;

    screen_message(&sending->ctl->screen,
                   "-- the server does not answer (%s); still trying to send --stage --",
                   err->text);
}

static void on_failed(struct client *client, const struct err *err)
{
    struct sending *sending = client->owner;

    sending->exit_code = ctl_fail_server(sending->ctl, err);
}

static const struct client_handlers handlers = {
    .on_open = on_open, .on_message = on_message, .on_waiting = on_waiting, .on_failed = on_failed};

int stage_send(struct ctl *ctl, const struct stage_packed *packed)
{
    struct sending sending = {.ctl = ctl, .packed = packed, .exit_code = CTL_FAILED};
    uv_loop_t loop;
    int rc;

    sending.chunk = malloc(STAGE_CHUNK_BYTES_MAX);
    if (sending.chunk == NULL || uv_loop_init(&loop) != 0) {
        free(sending.chunk);
        return ctl_fail(ctl, CTL_FAILED, "no event loop: out of files or memory", "");
    }
    client_open(&sending.client, &loop, &ctl->server, ctl->options.patience_us, &handlers,
                &sending);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    rc = uv_loop_close(&loop);
    assert(rc == 0); /* fails where a handle is still open */
    (void)rc;
    free(sending.chunk);
    return sending.exit_code;
}
