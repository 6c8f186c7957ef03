/* A server without connections: what is durable when an answer leaves, and what a role may send. What would be sent is looked at
 * in place of conn_send. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/msg_schema.h"
#include "common/msg_version.h"
#include "rendezvous/server/internal.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/store_tools.h"

static struct server server; /* large */
static struct peer peer;
static struct endpoint endpoint;
static uv_loop_t loop;
static struct {
    enum msg_type type;
    bool is_stored;
    char text[128];
} sent[8];
static uint32_t sent_count;

enum status __wrap_conn_send(struct conn *conn, struct msg *msg, struct err *err);
enum status __wrap_conn_send(struct conn *conn, struct msg *msg, struct err *err)
{
    CHECK(conn == &peer.conn && sent_count < sizeof sent / sizeof sent[0]);
    (void)err;
    sent[sent_count].type = msg->type;
    sent[sent_count].is_stored = !store_is_dirty(server.store);
    (void)snprintf(sent[sent_count].text, sizeof sent[0].text, "%s",
                   msg->type == MSG_TYPE_ERROR ? msg->error.message : "");
    sent_count++;
    return STATUS_OK;
}

void __wrap_conn_close(struct conn *conn, enum status why, const char *text);
void __wrap_conn_close(struct conn *conn, enum status why, const char *text)
{
    (void)why;
    (void)text;
    CHECK(conn == &peer.conn && peer.is_closing);
}

void __wrap_conn_deadline(struct conn *conn, uint64_t timeout_us, const char *what);
void __wrap_conn_deadline(struct conn *conn, uint64_t timeout_us, const char *what)
{
    CHECK(conn == &peer.conn && timeout_us == 0 && what[0] == '\0');
}

static void begin(void)
{
    const struct rdzv_options options = {.jobs_max = 4,
                                         .nodes_max = 4,
                                         .lease_us = 60000000,
                                         .beat_interval_us = 1000000,
                                         .suspect_us = 5000000,
                                         .lost_us = 15000000,
                                         .seed = 1,
                                         .cluster = "test"};
    struct rdzv_event restored = {.type = RDZV_EVENT_RESTORED, .next_job_id = 1};

    memset(&server, 0, sizeof server);
    CHECK_EQ(uv_loop_init(&loop), 0);
    server.loop = &loop;
    server.conns_max = CONNS_MAX;
    server.core_options = options;
    server.core_memory = calloc(1, rdzv_bytes(&options));
    server.actions = calloc(1, sizeof *server.actions);
    server.waiters = calloc(WAITERS_MAX, sizeof *server.waiters);
    CHECK(server.core_memory != NULL && server.actions != NULL && server.waiters != NULL);
    server.core = rdzv_init(server.core_memory, &options);
    server.store = open_or_fail(test_dir());
    (void)uv_timer_init(&loop, &server.tick_timer);
    (void)uv_timer_init(&loop, &server.flush_timer);
    (void)uv_timer_init(&loop, &server.wait_timer);
    peer = (struct peer){
        .server = &server, .id = PEERS_MAX, .endpoint = &endpoint, .uid = (uint32_t)geteuid()};
    (void)snprintf(peer.user, sizeof peer.user, "ann");
    peer.knows_user = true;
    server.peers[0] = &peer;
    server_step(&server, &restored);
    sent_count = 0;
}

static void end(void)
{
    uv_close((uv_handle_t *)&server.tick_timer, NULL);
    uv_close((uv_handle_t *)&server.flush_timer, NULL);
    uv_close((uv_handle_t *)&server.wait_timer, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_EQ(uv_loop_close(&loop), 0);
    store_close(&server.store);
    arena_reset(&server.arena);
    arena_reset(&server.spec_arena);
    free(server.core_memory);
    free(server.actions);
    free(server.waiters);
}

/* Whether what it says outlives a kill of the server. */
static bool take_answer(enum msg_type type)
{
    CHECK_EQ(sent_count, 1);
    if (sent[0].type != type)
        FAIL("%s: %s", msg_type_name(sent[0].type), sent[0].text);
    sent_count = 0;
    return sent[0].is_stored;
}

static void say_hello(enum msg_type type)
{
    struct msg hello = {.type = type};

    if (type == MSG_TYPE_CLIENT_HELLO)
        hello.client_hello = (struct msg_client_hello){
            .version = msg_release(), .protocol = msg_protocol(), .schema = msg_schema()};
    else
        hello.node_hello = (struct msg_node_hello){.name = "n1",
                                                   .version = msg_release(),
                                                   .protocol = msg_protocol(),
                                                   .schema = msg_schema(),
                                                   .boot_id = "b",
                                                   .machine_id = "m",
                                                   .state_id = "s",
                                                   .address = "127.0.0.1",
                                                   .slots = 2};
    CHECK(peer_may_send(&peer, &hello));
    peer_hello(&peer, &hello);
    (void)take_answer(type == MSG_TYPE_CLIENT_HELLO ? MSG_TYPE_CLIENT_WELCOME
                                                    : MSG_TYPE_NODE_WELCOME);
}

TEST(an_answer_leaves_when_what_it_says_is_stored)
{
    static const char *const argv[] = {"train"};
    struct msg submit = {.type = MSG_TYPE_SUBMIT,
                         .submit = {.request_id = "00000000000000000000000000000001",
                                    .name = "job",
                                    .cwd = "/",
                                    .array = "",
                                    .after = "",
                                    .nodes = 1,
                                    .nproc_per_node = 1,
                                    .argv = {argv, 1}}};
    struct msg cancel = {.type = MSG_TYPE_CANCEL,
                         .cancel = {.job = "1", .signal = 15, .grace_us = -1}};

    begin();
    say_hello(MSG_TYPE_CLIENT_HELLO);
    client_submit(&peer, &submit);
    CHECK_EQ(sent_count, 0); /* submits of one turn share a transaction */
    server_flush(&server);
    CHECK(take_answer(MSG_TYPE_SUBMITTED));
    client_request(&peer, &cancel);
    CHECK(take_answer(MSG_TYPE_JOB_INFO));
    end();
}

/* Root and the server's own user may be both on a unix socket; the hello says which one this connection is. */
TEST(a_hello_chooses_one_of_the_roles_that_a_local_connection_may_have)
{
    const struct msg beat = {.type = MSG_TYPE_BEAT}, cancel = {.type = MSG_TYPE_CANCEL};

    begin();
    say_hello(MSG_TYPE_CLIENT_HELLO);
    CHECK(peer_may_send(&peer, &cancel));
    CHECK(!peer_may_send(&peer, &beat));
    CHECK_STR(sent[0].text, "a client may not send beat");
    end();

    begin();
    say_hello(MSG_TYPE_NODE_HELLO);
    CHECK(peer_may_send(&peer, &beat));
    CHECK(!peer_may_send(&peer, &cancel));
    CHECK_STR(sent[0].text, "a node may not send cancel");
    CHECK(peer.is_closing);
    end();
}

TEST_MAIN
