/* node_read: a client's question to a node. The server forwards it as node_ask under an id of its
 * own and adds what it knows: whose rights count, the job's command, where other nodes are. The
 * node's node_data goes back under the client's id. Anybody may ask about any node; about a job
 * only those who may see it. */
#include <stdio.h>
#include <string.h>

#include "common/fnv.h"
#include "rendezvous/server/internal.h"

#define RELAY_ANSWER_US 60000000u

/* Adds the command and user of the job that the question is about. False: an error was answered. */
static bool add_job(struct peer *peer, const char *job, struct msg_node_ask *ask)
{
    struct server *server = peer->server;
    struct rdzv_record record;
    struct store_spec spec;
    const char *user;

    ask->job_id = store_find_job(server->store, job, peer_viewer(peer));
    if (ask->job_id == 0) {
        peer_error(peer, "not_found", "ddpctl ps -a lists them", "there is no job %s", job);
        return false;
    }
    if (job_is_active(server, ask->job_id))
        record = *rdzv_job_record(server->core, ask->job_id);
    else if (!store_get_job(server->store, ask->job_id, &server->arena, &record))
        record.user[0] = '\0';
    user = arena_text(&server->arena, record.user, strlen(record.user));
    if (record.user[0] == '\0' || user == NULL ||
        store_spec(server->store, ask->job_id, true, &server->arena, &spec) != STATUS_OK) {
        answer_unread(peer, ask->job_id);
        return false;
    }
    ask->user = user;
    ask->cwd = spec.cwd;
    ask->argv = spec.argv;
    ask->env = spec.env;
    return true;
}

/* Adds the addresses at which `node` reaches the other nodes. False: no memory. */
static bool add_peers(struct server *server, const char *node, const struct msg_text_list *names,
                      struct msg_pair_list *peers)
{
    struct msg_pair *pairs = arena_alloc(&server->arena, sizeof *pairs * (names->count + 1u));
    uint64_t now_us = clock_boot_us();

    for (uint32_t i = 0; pairs != NULL && i < names->count; i++) {
        struct part_node peer;
        uint32_t known = 0;

        while (known < peers->count && strcmp(pairs[known].name, names->items[i]) != 0)
            known++;
        if (known < peers->count || !rdzv_has_node(server->core, names->items[i]))
            continue;
        rdzv_node_at(server->core, rdzv_node_after(server->core, names->items[i]) - 1, now_us,
                     &peer);
        pairs[peers->count++] = (struct msg_pair){
            .name = peer.name, .value = rdzv_address_for(server->core, peer.name, node)};
    }
    peers->items = pairs;
    return pairs != NULL;
}

static void not_sent(struct peer *peer, struct peer *node, uint64_t forward_id, const char *why)
{
    struct waiter waiter;
    char problem[REASON_BYTES_MAX];

    if (!wait_take_forwarded(node, WAIT_NODE_DATA, forward_id, &waiter))
        return;
    (void)snprintf(problem, sizeof problem, "%s cannot be asked: %.150s", node->name, why);
    answer_question_problem(peer, waiter.after, problem);
}

/* A new id, by which the node gives each user a share of its places. */
static uint64_t ask_id(struct peer *peer)
{
    const uint64_t user = peer_user_key(peer);

    return ++peer->server->forward_serial << NODE_ASKER_SHIFT |
           (peer_is_admin(peer) ? NODE_ASKER_ADMIN : 0) |
           (fnv_add(FNV_START, &user, sizeof user) & NODE_ASKER_BITS);
}

static void forward(struct peer *peer, struct peer *node, const struct msg_node_read *request)
{
    struct server *server = peer->server;
    struct msg msg = {
        .type = MSG_TYPE_NODE_ASK,
        .node_ask = {
            .what = request->what, .args = request->args, .user = peer_user(peer), .cwd = ""}};
    struct err err;

    arena_reset(&server->arena);
    if (request->job[0] != '\0' && !add_job(peer, request->job, &msg.node_ask))
        return;
    if (!add_peers(server, request->node, &request->peers, &msg.node_ask.peers)) {
        peer_error(peer, "later", "", "the server has no memory for a question to %s",
                   request->node);
        return;
    }
    msg.node_ask.request_id = ask_id(peer);
    if (!wait_add(peer,
                  &(struct waiter){.kind = WAIT_NODE_DATA,

                                   .after = request->request_id,
                                   .node_peer_id = node->id,
                                   .forward_id = msg.node_ask.request_id},
                  RELAY_ANSWER_US))
        return;
    if (peer_try_send(node, &msg, &err) != STATUS_OK)
        not_sent(peer, node, msg.node_ask.request_id, err.text);
}

void relay_request(struct peer *peer, const struct msg_node_read *request)
{
    struct server *server = peer->server;
    struct peer *node;
    char problem[REASON_BYTES_MAX];

    if (!rdzv_has_node(server->core, request->node)) {
        peer_error(peer, "not_found", "ddpctl nodes -a lists them", "there is no node %s",
                   request->node);
        return;
    }
    node = peer_find(server, rdzv_node_conn(server->core, request->node));
    if (node != NULL && peer_takes_more(node)) {
        forward(peer, node, request);
        return;
    }
    (void)snprintf(problem, sizeof problem,
                   node == NULL ? "%s is not connected"
                                : "much waits for %s already; ask again later",
                   request->node);
    answer_question_problem(peer, request->request_id, problem);
}

void relay_answer(struct peer *node, const struct msg_node_data *data)
{
    struct msg msg = {.type = MSG_TYPE_NODE_DATA, .node_data = *data};
    struct waiter waiter;
    struct peer *peer;

    if (!wait_take_forwarded(node, WAIT_NODE_DATA, data->request_id, &waiter))
        return; /* too late: the client has been told that there is no answer */
    peer = peer_find(node->server, waiter.peer_id);
    msg.node_data.request_id = waiter.after;
    msg.node_data.server_ms = clock_wall_ms();
    if (peer != NULL)
        peer_send(peer, &msg);
}
