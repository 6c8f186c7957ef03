/* The worker's rank and world, and a shim that is slow, breaks the protocol or is gone. */
#include "worker/agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/msg.h"
#include "tests/lib/test.h"

static const char *const names[] = {
    "RANK",          "WORLD_SIZE",          "LOCAL_RANK",     "LOCAL_WORLD_SIZE",
    "DDP_SHIM_FD",   "DDP_JOB_ID",          "DDP_GENERATION", "DDP_NODE_ADDRESS",
    "DDP_NODE_NAME", "DDP_CHECKPOINT_STEP", "DDP_CLUSTER"};

static void forget_environment(void)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        CHECK_EQ(unsetenv(names[i]), 0); /* NOLINT(concurrency-mt-unsafe): one thread */
}

static void set(const char *name, const char *value)
{
    CHECK_EQ(setenv(name, value, 1), 0); /* NOLINT(concurrency-mt-unsafe): one thread */
}

TEST(alone_without_a_launcher)
{
    struct agent_place place;
    struct agent *agent;
    struct err err;
    struct comm_blob blob = {.byte_count = 0};

    forget_environment();
    CHECK_EQ(agent_read_place(&place, &err), STATUS_OK);
    CHECK_EQ(place.world, 1);
    CHECK_EQ(place.rank, 0);
    CHECK_EQ(place.generation, 1);
    CHECK_EQ(place.shim_fd, -1);
    CHECK_EQ(place.checkpoint_step, 0);
    CHECK_STR(place.node, "");
    CHECK_EQ(agent_open(&agent, &place, &err), STATUS_OK);
    CHECK(agent == NULL);
    CHECK_EQ(agent_join(agent, &blob, &err), STATUS_OK);
    CHECK_EQ(agent_report(agent, &(struct agent_progress){0}, true), STATUS_OK);
    agent_fail(agent, "nobody listens");
    agent_close(&agent);
}

TEST(bad_environments_are_named)
{
    static const struct {
        const char *name, *value;
        enum status status;
        const char *word;
    } cases[] = {
        {"WORLD_SIZE", "x", STATUS_BAD_INPUT, "WORLD_SIZE=x"},
        {"WORLD_SIZE", "", STATUS_BAD_INPUT, "WORLD_SIZE="},
        {"WORLD_SIZE", "-1", STATUS_BAD_INPUT, "WORLD_SIZE=-1"},
        {"WORLD_SIZE", "99999", STATUS_BAD_INPUT, "WORLD_SIZE=99999"},
        {"WORLD_SIZE", "0", STATUS_BAD_INPUT, "WORLD_SIZE=0"},
        {"RANK", "1", STATUS_BAD_INPUT, "RANK=1"},
        {"DDP_GENERATION", "0", STATUS_BAD_INPUT, "DDP_GENERATION"},
        {"WORLD_SIZE", "2", STATUS_UNSUPPORTED, "ddpctl run --standalone --nproc-per-node 2"},
    };
    struct agent_place place;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        forget_environment();
        set(cases[i].name, cases[i].value);
        CHECK_EQ(agent_read_place(&place, &err), cases[i].status);
        if (strstr(err.text, cases[i].word) == NULL)
            FAIL("expected %s in %s", cases[i].word, err.text);
    }
    forget_environment();
}

/* An agent on one end of a socket pair; `shim` is the other. */
static struct agent *open_agent(int *shim)
{
    struct agent_place place = {.rank = 1, .world = 2, .job_id = 9, .generation = 3};
    struct agent *agent;
    int fds[2];

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    place.shim_fd = fds[0];
    *shim = fds[1];
    CHECK_EQ(agent_open(&agent, &place, NULL), STATUS_OK);
    return agent;
}

static void send_world(int shim, uint32_t generation, const char *blob)
{
    struct msg msg = {.type = MSG_TYPE_WORLD};
    struct buf out = {0};

    msg.world.job_id = 9;
    msg.world.generation = generation;
    msg.world.blob = (struct msg_bytes){(const uint8_t *)blob, (uint32_t)strlen(blob)};
    CHECK_EQ(msg_encode(&msg, &out, NULL), STATUS_OK);
    CHECK_EQ(send(shim, out.bytes, out.byte_count, 0), out.byte_count);
    buf_free(&out);
}

TEST(the_world_of_this_generation_counts)
{
    int shim;
    struct agent *agent = open_agent(&shim);
    struct comm_blob blob = {.byte_count = 0};
    struct err err = {0};

    send_world(shim, 2, "old");
    send_world(shim, 3, "mine");
    CHECK_EQ(agent_join(agent, &blob, &err), STATUS_OK);
    CHECK_EQ(blob.byte_count, 4);
    CHECK_BYTES(blob.bytes, "mine", 4);
    agent_close(&agent);
    CHECK_EQ(close(shim), 0);
}

TEST(a_shim_that_leaves_is_noticed)
{
    int shim;
    struct agent *agent = open_agent(&shim);
    struct comm_blob blob = {.byte_count = 0};

    CHECK_EQ(close(shim), 0);
    CHECK_EQ(agent_join(agent, &blob, NULL), STATUS_CLOSED);
    CHECK_EQ(agent_report(agent, &(struct agent_progress){0}, true), STATUS_CLOSED);
    agent_close(&agent);
}

TEST(what_is_no_message_is_refused)
{
    int shim;
    struct agent *agent = open_agent(&shim);
    struct comm_blob blob = {.byte_count = 0};

    CHECK_EQ(send(shim, "\0\0\0\2{}", 6, 0), 6);
    CHECK_EQ(agent_join(agent, &blob, NULL), STATUS_BAD_INPUT);
    agent_close(&agent);
    CHECK_EQ(close(shim), 0);
}

/* Ten thousand messages that nobody reads: no call blocks. JSON cannot express NaN, but a NaN is
 * not an error. */
TEST(a_slow_shim_never_blocks)
{
    int shim;
    struct agent *agent = open_agent(&shim);
    struct agent_progress progress = {
        .epoch = 1, .epochs = 2, .steps = 10000, .loss = (double)__builtin_nanf("")};

    for (uint64_t i = 0; i < 10000; i++) {
        progress.step = i;
        CHECK_EQ(agent_report(agent, &progress, true), STATUS_OK);
    }
    agent_close(&agent);
    CHECK_EQ(close(shim), 0);
}

TEST(a_closed_number_is_named)
{
    struct agent_place place = {.rank = 0, .world = 1, .generation = 1, .shim_fd = 999};
    struct agent *agent;
    struct err err = {0};

    CHECK_EQ(agent_open(&agent, &place, &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "DDP_SHIM_FD=999") != NULL);
}

TEST_MAIN
