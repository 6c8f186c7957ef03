/* Input of a job's owner for one of its ranks. It is forwarded to the rank's node under an id of
 * ours, and the answer goes back under the client's id. The server stores none of it: a client
 * sends unanswered input again, and the rank's shim counts the bytes. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/server/internal.h"

#define INPUT_ANSWER_US 10000000u

/* A final refusal: the client stops. */
static void refuse(struct peer *peer, const struct msg_input *request, const char *problem)
{
    struct msg msg = {
        .type = MSG_TYPE_INPUT_STATE,
        .input_state = {.request_id = request->request_id, .is_closed = true, .problem = problem}};

    peer_send(peer, &msg);
}

static void forward(struct peer *peer, struct peer *node, const struct msg_input *request)
{
    struct server *server = peer->server;
    struct msg msg = {.type = MSG_TYPE_INPUT, .input = *request};
    const struct waiter waiter = {.kind = WAIT_INPUT,
                                  .after = request->request_id,
                                  .node_peer_id = node->id,
                                  .forward_id = ++server->forward_serial};

    msg.input.request_id = server->forward_serial;
    if (wait_add(peer, &waiter, INPUT_ANSWER_US))
        peer_send(node, &msg);
}

/* Only the owner of a job may type into it, not even an admin. */
static bool is_owner(struct peer *peer, uint64_t job_id)
{
    const struct rdzv_record *record = rdzv_job_record(peer->server->core, job_id);

    return record != NULL && strcmp(record->user, peer_user(peer)) == 0;
}

void input_request(struct peer *peer, const struct msg_input *request)
{
    struct server *server = peer->server;
    char number[24], name[NODE_NAME_BYTES_MAX];
    struct peer *node;

    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)request->job_id);
    if (store_find_job(server->store, number, peer_viewer(peer)) == 0)
        refuse(peer, request, "there is no such job");
    else if (!job_is_active(server, request->job_id))
        refuse(peer, request, "the job has ended");
    else if (!is_owner(peer, request->job_id))
        refuse(peer, request, "only the owner of a job gives it input");
    else if (!wait_rank_node(server, request->job_id, request->generation, request->rank, name))
        answer_input_problem(peer, request->request_id, "the rank does not run now");
    else if ((node = peer_find(server, rdzv_node_conn(server->core, name))) == NULL)
        answer_input_problem(peer, request->request_id, "its node is not connected");
    else if (!peer_takes_more(node))
        answer_input_problem(peer, request->request_id, "much waits for its node already");
    else
        forward(peer, node, request);
}

void input_answer(struct peer *node, const struct msg_input_state *state)
{
    struct msg msg = {.type = MSG_TYPE_INPUT_STATE, .input_state = *state};
    struct waiter waiter;
    struct peer *peer;

    if (!wait_take_forwarded(node, WAIT_INPUT, state->request_id, &waiter))
        return; /* too late: the client has sent it again */
    peer = peer_find(node->server, waiter.peer_id);
    msg.input_state.request_id = waiter.after;
    if (peer != NULL)
        peer_send(peer, &msg);
}
