/* The table of requests that wait for an answer. */
#include "rendezvous/server/internal.h"
#include "tests/lib/test.h"

static struct server server; /* large */
static struct waiter waiters[WAITERS_MAX];
static struct peer client, other_client, node, other_node;

static void add_peer(struct peer *peer, uint64_t place, uint32_t uid)
{
    *peer = (struct peer){.server = &server, .id = 3 * PEERS_MAX + place, .uid = uid};
    server.peers[place] = peer;
}

/* Nothing is sent: no connection is open, and the server stops, so it needs no timer. */
static void begin(void)
{
    server.is_stopping = true;
    server.waiters = waiters;
    server.waiter_count = 0;
    add_peer(&client, 1, 1000);
    add_peer(&other_client, 2, 1001);
    add_peer(&node, 3, 0);
    add_peer(&other_node, 4, 0);
}

static bool ask(struct peer *peer, uint64_t forward_id)
{
    const struct waiter waiter = {
        .kind = WAIT_NODE_DATA, .node_peer_id = node.id, .forward_id = forward_id};

    return wait_add(peer, &waiter, 1000000);
}

TEST(an_answer_gives_the_place_of_its_request_back)
{
    struct waiter waiter;

    begin();
    for (uint64_t i = 1; i <= 3 * WAITERS_PER_PEER_MAX; i++) {
        CHECK(ask(&client, i));
        CHECK_EQ(client.waiter_count, 1);
        CHECK(wait_take_forwarded(&node, WAIT_NODE_DATA, i, &waiter));
        CHECK(waiter.peer_id == client.id && waiter.forward_id == i);
        CHECK_EQ(client.waiter_count, 0);
    }
    CHECK_EQ(server.waiter_count, 0);
}

TEST(only_the_node_that_was_asked_answers)
{
    struct waiter waiter;

    begin();
    CHECK(ask(&client, 7) && ask(&other_client, 8));
    CHECK(!wait_take_forwarded(&other_node, WAIT_NODE_DATA, 7, &waiter));
    CHECK(!wait_take_forwarded(&node, WAIT_LOG_NODE, 7, &waiter));
    CHECK(!wait_take_forwarded(&node, WAIT_NODE_DATA, 9, &waiter));
    CHECK(wait_take_forwarded(&node, WAIT_NODE_DATA, 8, &waiter));
    CHECK_EQ(waiter.peer_id, other_client.id);
    CHECK(!wait_take_forwarded(&node, WAIT_NODE_DATA, 8, &waiter)); /* once */
    CHECK(wait_take_forwarded(&node, WAIT_NODE_DATA, 7, &waiter));
    CHECK_EQ(waiter.peer_id, client.id);
}

TEST(requests_go_with_their_client)
{
    struct waiter waiter;

    begin();
    CHECK(ask(&client, 1) && ask(&client, 2) && ask(&other_client, 3));
    wait_peer_gone(&server, &client);
    CHECK_EQ(server.waiter_count, 1);
    CHECK(!wait_take_forwarded(&node, WAIT_NODE_DATA, 1, &waiter));
    CHECK(wait_take_forwarded(&node, WAIT_NODE_DATA, 3, &waiter));
}

TEST_MAIN
