#include "launcherd/node/node_questions.h"

#include "common/io/conn.h"

static void send_answer(const struct node_questions *questions, uint64_t request_id,
                        const struct buf *json, const char *problem)
{
    const struct node_host *host = questions->host;
    struct msg msg = {
        .type = MSG_TYPE_NODE_DATA,
        .node_data = {.request_id = request_id, .problem = problem, .node_ms = clock_wall_ms()}};

    if (problem[0] == '\0') {
        msg.node_data.bytes.items = (const uint8_t *)json->bytes;
        msg.node_data.bytes.count = (uint32_t)json->byte_count;
    }
    host->send_server(host->owner, &msg);
}

static void on_answer(void *owner, uint64_t request_id, const struct buf *json, const char *problem)
{
    send_answer(owner, request_id, json, problem);
}

void node_questions_open(struct node_questions *questions, const struct node_host *host,
                         struct gpu_watch *watch)
{
    *questions = (struct node_questions){
        .host = host,
        .gauges = {.on_answer = on_answer, .owner = questions},
        .helpers = {.host = host, .on_answer = on_answer, .owner = questions}};
    node_gauges_open(&questions->gauges, host, watch);
}

static void answer_clock(const struct node_questions *questions, uint64_t request_id)
{
    struct buf json = {0};

    buf_printf(&json, "{}");
    send_answer(questions, request_id, &json, json.failed ? "out of memory" : "");
    buf_free(&json);
}

void node_questions_ask(struct node_questions *questions, const struct msg_node_ask *ask)
{
    switch (ask->what) {
    case NODE_ASKED_CLOCK:
        answer_clock(questions, ask->request_id);
        return;
    case NODE_ASKED_GAUGES:
        node_gauges_read(&questions->gauges, ask->request_id);
        return;
    case NODE_ASKED_DOCTOR:
    case NODE_ASKED_LISTEN:
    case NODE_ASKED_CONNECT:
        node_helpers_ask(&questions->helpers, ask);
        return;
    }
}

void node_questions_close(struct node_questions *questions)
{
    node_gauges_close(&questions->gauges);
    node_helpers_close(&questions->helpers);
}

void node_questions_free(struct node_questions *questions)
{
    node_gauges_free(&questions->gauges);
}
