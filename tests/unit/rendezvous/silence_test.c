/* When silent nodes are at fault and when the server itself may be: pauses, and most nodes silent
 * at once. */
#include "tests/unit/rendezvous/core_tools.h"

#include "tests/lib/test.h"

#define NODES 3u

static void begin(void)
{
    begin_with(4, NODES);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint64_t conn = 1; conn <= NODES; conn++)
        step_hello(conn,
                   (struct msg_node_hello){.name = (const char *const[]){"a", "b", "c"}[conn - 1],
                                           .instance = conn,
                                           .slots = 1});
}

static void beat(uint64_t conn)
{
    step_beat(conn, NULL, 0);
}

/* How many nodes were given up in a tick after that time. */
static uint32_t lost_after(uint64_t seconds)
{
    now_us += seconds * SECOND_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    return count_of(RDZV_CLOSE_NODE);
}

static uint32_t count_lost(void)
{
    struct part_node node;
    uint32_t count = 0;

    for (uint32_t i = 0; i < rdzv_node_count(core); i++) {
        rdzv_node_at(core, i, now_us, &node);
        count += node.state == NODE_LOST;
    }
    return count;
}

TEST(a_pause_of_the_server_is_not_the_nodes_silence)
{
    begin();
    now_us += 4 * SECOND_US;
    beat(2);
    beat(3);
    now_us += 17 * SECOND_US; /* node a was silent for 4 s of these 21 */
    step((struct rdzv_event){.type = RDZV_EVENT_TICK, .paused_us = 17 * SECOND_US});
    CHECK(says("this server did not run for 17000 ms: nodes get that time"));
    CHECK_EQ(count_of(RDZV_CLOSE_NODE), 0);
    beat(2); /* what came during the pause */
    beat(3);
    CHECK_EQ(lost_after(5), 0);
    beat(2);
    beat(3);
    CHECK_EQ(lost_after(5), 0);
    beat(2);
    beat(3);
    CHECK_EQ(lost_after(1), 0); /* 15 s, and one more to read the node's messages */
    beat(2);
    CHECK_EQ(lost_after(1), 1);
}

TEST(a_pause_before_any_node_is_nothing)
{
    begin_with(4, NODES);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    now_us += 100 * SECOND_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK, .paused_us = 100 * SECOND_US});
    CHECK_EQ(count_of(RDZV_CLOSE_NODE), 0);
}

TEST(one_silent_node_of_three_is_lost)
{
    begin();
    for (uint32_t i = 0; i < 2; i++) {
        now_us += 7 * SECOND_US;
        beat(2);
        beat(3);
    }
    CHECK_EQ(lost_after(1), 1);
}

TEST(most_nodes_silent_at_once_have_until_their_lease_ends)
{
    begin();
    now_us += 14 * SECOND_US;
    beat(3);
    CHECK_EQ(lost_after(1), 0); /* two of three are silent */
    CHECK_EQ(lost_after(4), 0);
    beat(3);
    CHECK_EQ(lost_after(40), 0); /* all three */
    CHECK_EQ(lost_after(1), 0);
    CHECK_EQ(lost_after(2), 2); /* the lease of a and b is over */
}

TEST(when_the_others_are_heard_again_the_rest_is_lost)
{
    begin();
    now_us += 14 * SECOND_US;
    beat(3);
    CHECK_EQ(lost_after(6), 0);
    beat(1);
    CHECK_EQ(count_of(RDZV_CLOSE_NODE), 0);
    beat(3);
    CHECK_EQ(count_of(RDZV_CLOSE_NODE), 1); /* only b: its 15 s are long over */
}

/* If a node has closed its connection, it is gone and not merely silent. */
TEST(nodes_that_have_closed_are_lost_as_ever)
{
    begin();
    for (uint64_t conn = 1; conn <= 2; conn++)
        step((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = conn});
    now_us += 14 * SECOND_US;
    beat(3);
    CHECK_EQ(rdzv_node_conn(core, "a"), 0);
    CHECK_EQ(lost_after(1), 0); /* no connection is left to close */
    now_us += SECOND_US;
    beat(3);
    CHECK_EQ(count_lost(), 2);
}

/* launcherd has connected again, and its hello on the earlier connection arrives only now: it is
 * older than the start order, and does not list the part. */
TEST(the_hello_of_an_older_connection_is_not_taken)
{
    const struct msg_node_hello hello = {.name = "a", .instance = 1, .slots = 1};
    struct msg_node_hello other = hello;
    struct part_beat_shim shim = {.generation = 1, .slot_mask = 1, .phase = SHIM_READY};

    begin();
    step_hello(12, hello);
    CHECK_EQ(count_of(RDZV_SEND_WELCOME), 1);
    shim.job_id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1});
    step_beat(12, &shim, 1);
    step_rank_report(12, (struct rank_report){.job_id = shim.job_id, .phase = SHIM_READY});
    step_hello(11, hello);
    CHECK_EQ(count_of(RDZV_SEND_WELCOME), 0);
    CHECK_EQ(find(RDZV_CLOSE_NODE)->conn, 11);
    CHECK_EQ(rdzv_job_record(core, shim.job_id)->stopping, 0);
    CHECK_EQ(rdzv_node_conn(core, "a"), 12);
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = 12}); /* nor after its end */
    step_hello(10, hello);
    CHECK_EQ(count_of(RDZV_SEND_WELCOME), 0);
    CHECK_EQ(rdzv_job_record(core, shim.job_id)->stopping, 0);
    other.instance = 9; /* another process: its own connections count */
    step_hello(9, other);
    CHECK_EQ(count_of(RDZV_SEND_WELCOME), 1);
}

/* The last event of that job in the last step; NULL: none. */
static const char *news_of(uint64_t job_id)
{
    const char *text = NULL;

    for (uint32_t i = 0; i < actions.count; i++)
        if (actions.items[i].type == RDZV_LOG_EVENT && actions.items[i].job_id == job_id)
            text = actions.items[i].text;
    return text;
}

TEST(the_jobs_on_a_silent_node_are_told)
{
    uint64_t job_id;

    begin();
    job_id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1});
    now_us += 2 * SECOND_US;
    for (uint64_t conn = 1; conn <= NODES; conn++)
        beat(conn); /* the job is on the first node; a start order is in flight */
    now_us += 6 * SECOND_US;
    beat(2);
    CHECK_STR(news_of(job_id), "its node a does not answer: silent for 6 s");
    CHECK(find(RDZV_JOB_CHANGED) != NULL); /* clients that wait for the job are notified */
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK(news_of(job_id) == NULL); /* once */
    beat(1);
    CHECK_STR(news_of(job_id), "its node a answers again");
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = 1});
    CHECK_STR(news_of(job_id), "its node a does not answer: its connection closed");
}

/* launcherd of node a beats for a second. is_silent: its shim does not answer it. Returns whether the server asks what the
 * ranks do. */
static bool beats_with_shim(const struct part_beat_shim *shim, bool is_silent)
{
    const struct part_shim_silent silent = {.job_id = shim->job_id,
                                            .generation = 1,
                                            .pid = 7,
                                            .silent_us = 31 * SECOND_US,
                                            .state = "T (stopped)"};
    struct msg msg = {.type = MSG_TYPE_BEAT};
    bool asks;

    now_us += SECOND_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    asks = find(RDZV_LOOK) != NULL;
    msg.beat.sent_us = now_us;
    msg.beat.shims.items = shim;
    msg.beat.shims.count = 1;
    msg.beat.silent.items = &silent;
    msg.beat.silent.count = is_silent;
    step_node(1, &msg);
    asks = asks || find(RDZV_LOOK) != NULL;
    step((struct rdzv_event){.type = RDZV_EVENT_LOOKED, /* nobody has answered */
                             .job_id = shim->job_id,
                             .generation = 1,
                             .text = ""});
    return asks;
}

/* Its ranks may work: what they tell waits in the shim. The server knows that, also if the node does not answer when it
 * asks what they do. */
TEST(ranks_of_a_shim_that_does_not_answer_do_not_hang)
{
    struct part_beat_shim shim = {.generation = 1, .slot_mask = 1, .phase = SHIM_RUNNING};
    struct msg msg = {.type = MSG_TYPE_PROGRESS,
                      .progress = {.generation = 1, .again_us = 2 * SECOND_US}};
    bool asks = false;

    begin();
    msg.progress.job_id = shim.job_id =
        step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1});
    step_rank_report(
        1, (struct rank_report){
               .job_id = shim.job_id, .phase = SHIM_RUNNING, .joined = true, .has_world = true});
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(!beats_with_shim(&shim, false));
        msg.progress.step++;
        step_node(1, &msg);
    }
    for (uint32_t i = 0; i < 60; i++)
        asks = beats_with_shim(&shim, i > 20) || asks;
    CHECK_EQ(rdzv_job_record(core, shim.job_id)->stopping, 0);
    CHECK(!asks);
    for (uint32_t i = 0; i < 40; i++) /* it answers again: they tell nothing all the same */
        (void)beats_with_shim(&shim, false);
    CHECK_EQ(rdzv_job_record(core, shim.job_id)->stopping, 1); /* STOP_FAILURE */
}

TEST_MAIN
