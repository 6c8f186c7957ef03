#include "ddpctl/why_ask.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "ddpctl/client.h"

#define WAIT_US 10000000u /* how long a node may take: it has to ask other programs */
#define ANSWER_US 25000000u

struct asking {
    struct client client;
    uint64_t job_id;
    uint32_t generation;
    struct why_question *questions; /* [count] */
    uint32_t count, left;
};

static void give_up(struct asking *asking, const char *problem)
{
    for (uint32_t i = 0; i < asking->count; i++)
        if (!asking->questions[i].is_done && asking->questions[i].problem[0] == '\0')
            (void)snprintf(asking->questions[i].problem, REASON_BYTES_MAX, "%s", problem);
    asking->left = 0;
    client_close(&asking->client);
}

static void send_question(struct asking *asking, uint32_t index)
{
    const struct why_question *question = &asking->questions[index];
    struct msg msg = {.type = MSG_TYPE_LOG_READ,
                      .log_read = {.request_id = index,
                                   .job_id = asking->job_id,
                                   .generation = asking->generation,
                                   .rank = question->rank,
                                   .offset = question->answer.byte_count,
                                   .bytes_max = LOG_CHUNK_BYTES_MAX,
                                   .wait_us = WAIT_US,
                                   .what = question->what}};
    struct err err = {0};

    if (client_send(&asking->client, &msg, &err) != STATUS_OK)
        give_up(asking, err.text);
}

static void on_open(struct client *client)
{
    struct asking *asking = client->owner;

    for (uint32_t i = 0; i < asking->count && asking->left > 0; i++)
        if (!asking->questions[i].is_done && asking->questions[i].problem[0] == '\0')
            send_question(asking, i);
    if (asking->left > 0)
        client_expect(client, ANSWER_US);
}

/* One question is done: it was answered, or it failed. */
static void finish(struct asking *asking)
{
    if (--asking->left == 0)
        client_close(&asking->client);
    else
        client_expect(&asking->client, ANSWER_US);
}

static void take(struct asking *asking, const struct msg_log_data *data)
{
    struct why_question *question = &asking->questions[data->request_id];

    if (data->request_id >= asking->count || question->is_done || question->problem[0] != '\0' ||
        data->offset != question->answer.byte_count)
        return;
    if (data->problem[0] != '\0') {
        (void)snprintf(question->problem, sizeof question->problem, "%s", data->problem);
        finish(asking);
        return;
    }
    question->answer.limit = WHY_ANSWER_MAX;
    buf_add(&question->answer, data->bytes.items, data->bytes.count);
    question->is_done = data->is_final || data->bytes.count == 0;
    if (question->answer.failed) {
        (void)snprintf(question->problem, sizeof question->problem,
                       "the answer of the node is longer than %u bytes", WHY_ANSWER_MAX);
        finish(asking);
    } else if (question->is_done) {
        finish(asking);
    } else {
        send_question(asking, (uint32_t)data->request_id);
    }
}

static void on_message(struct client *client, const struct msg *msg)
{
    struct asking *asking = client->owner;

    if (asking->left == 0)
        return;
    if (msg->type == MSG_TYPE_LOG_DATA)
        take(asking, &msg->log_data);
    else if (msg->type == MSG_TYPE_ERROR)
        give_up(asking, msg->error.message);
}

static void on_waiting(struct client *client, const struct err *err)
{
    (void)client;
    (void)err;
}

static void on_failed(struct client *client, const struct err *err)
{
    give_up(client->owner, err->text);
}

void why_ask(struct ctl *ctl, uint64_t job_id, uint32_t generation, struct why_question *questions,
             uint32_t count)
{
    static const struct client_handlers handlers = {.on_open = on_open,
                                                    .on_message = on_message,
                                                    .on_waiting = on_waiting,
                                                    .on_failed = on_failed};
    struct asking asking = {.job_id = job_id,
                            .generation = generation,
                            .questions = questions,
                            .count = count,
                            .left = count};
    uv_loop_t loop;
    int rc;

    assert(count > 0 && count <= WHY_ASK_MAX);
    if (uv_loop_init(&loop) != 0) {
        for (uint32_t i = 0; i < count; i++)
            (void)snprintf(questions[i].problem, REASON_BYTES_MAX, "no event loop");
        return;
    }
    client_open(&asking.client, &loop, &ctl->server, 0, &handlers, &asking);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    rc = uv_loop_close(&loop);
    assert(rc == 0); /* fails where a handle is still open */
    (void)rc;
}

void why_ask_free(struct why_question *questions, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        buf_free(&questions[i].answer);
}
