/* Which shim may answer on the connection of a run directory. */
#include "launcherd/node/node_shims.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/frame.h"
#include "common/msg_schema.h"
#include "common/msg_version.h"
#include "tests/lib/test.h"

#define JOB 7u
#define GENERATION 3u

static uv_loop_t loop;
static enum launcher_event_type events[8];
static uint32_t event_count;

static void step(void *owner, struct launcher_event event)
{
    (void)owner;
    CHECK(event.job_id == JOB && event.generation == GENERATION);
    CHECK(event_count < sizeof events / sizeof events[0]);
    events[event_count++] = event.type;
}

/* What the core is told when the shim of that job and generation says hello, and closes. */
static void answer(uint64_t job_id, uint32_t generation)
{
    static struct launcher core; /* only its name is looked at, for the log */
    struct node_host host = {.loop = &loop, .core = &core, .state_dir = test_dir(), .step = step};
    struct msg_start start = {.job_id = JOB, .generation = GENERATION, .cluster = "c"};
    struct msg hello = {.type = MSG_TYPE_SHIM_HELLO,
                        .shim_hello = {.job_id = job_id,
                                       .generation = generation,
                                       .pid = 1,
                                       .protocol = msg_protocol(),
                                       .schema = msg_schema()}};
    struct node_shims shims;
    struct node_shim *shim;
    struct buf frame = {0};
    struct err err;
    int fds[2];

    event_count = 0;
    CHECK_EQ(uv_loop_init(&loop), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    node_shims_init(&shims, &host);
    shim = node_shim_new(&shims, &start);
    CHECK(shim != NULL && node_shim_open(shim, fds[0]));
    CHECK_EQ(msg_encode(&hello, &frame, &err), STATUS_OK);
    CHECK_EQ(write(fds[1], frame.bytes, frame.byte_count), frame.byte_count);
    CHECK_EQ(close(fds[1]), 0);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(!shim->conn_open);
    node_shims_close(&shims);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    node_shims_free(&shims);
    CHECK_EQ(uv_loop_close(&loop), 0);
    buf_free(&frame);
}

TEST(only_the_shim_of_that_job_and_generation_answers)
{
    answer(JOB, GENERATION);
    CHECK_EQ(event_count, 2);
    CHECK(events[0] == LAUNCHER_EVENT_SHIM_OPEN && events[1] == LAUNCHER_EVENT_SHIM_CLOSED);
    answer(JOB, GENERATION - 1);
    CHECK_EQ(event_count, 1);
    CHECK_EQ(events[0], LAUNCHER_EVENT_SHIM_CLOSED);
    answer(JOB + 1, GENERATION);
    CHECK_EQ(event_count, 1);
    CHECK_EQ(events[0], LAUNCHER_EVENT_SHIM_CLOSED);
}

TEST_MAIN
