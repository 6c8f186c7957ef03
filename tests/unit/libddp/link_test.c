/* A worker and its shim: joining, skipped reports, a shim that breaks the protocol, forks,
 * threads. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io/mono.h"
#include "libddp/place.h"
#include "tests/lib/test.h"
#include "tests/unit/libddp/shim_end.h"

TEST(a_join_gives_the_blob_of_rank_0)
{
    struct shim_end end;
    struct ddp *ddp = shim_end_open(&end);
    struct ddp_error error;
    const struct msg *msg;
    char blob[DDP_BLOB_BYTES_MAX];
    size_t byte_count = 0;

    CHECK_EQ(ddp_join(ddp, blob, &byte_count, sizeof blob, 0, &error), DDP_TIMEOUT);
    msg = shim_end_next(&end);
    CHECK_EQ(msg->type, MSG_TYPE_WORKER_JOIN);
    CHECK_EQ(msg->worker_join.rank, 1);
    shim_end_send_world(&end, 2, "old");
    CHECK_EQ(ddp_join(ddp, blob, &byte_count, sizeof blob, 0, &error), DDP_TIMEOUT);
    shim_end_send_json(&end, "{\"type\":\"tomorrow\"}");
    shim_end_send_world(&end, 3, "mine");
    CHECK_EQ(ddp_join(ddp, blob, &byte_count, 3, DDP_NO_LIMIT, &error), DDP_TOO_BIG);
    CHECK_EQ(byte_count, 4);
    CHECK_EQ(ddp_join(ddp, blob, &byte_count, sizeof blob, DDP_NO_LIMIT, &error), DDP_BAD_INPUT);
    CHECK(strstr(error.text, "called before") != NULL);
    CHECK(shim_end_is_quiet(&end)); /* one join in all */
    ddp_leave(&ddp);
    CHECK(ddp == NULL);
    shim_end_close(&end);
}

/* Takes the reports that have come because a second was over: at most one for each since `begun_us`,
 * and none in the usual case. Returns the step of the last one; 0: none has come. */
static uint64_t take_due(struct shim_end *end, uint64_t begun_us)
{
    uint64_t count = 0, step = 0;

    for (; !shim_end_is_quiet(end); count++)
        step = shim_end_next(end)->progress.step;
    CHECK(count <= (mono_us() - begun_us) / 1000000);
    return step;
}

TEST(reports_come_once_a_second_and_the_last_one_always)
{
    const uint64_t begun_us = mono_us();
    struct shim_end end;
    struct ddp *ddp = shim_end_open(&end);
    uint64_t told;
    struct ddp_progress progress = {.epoch = 1, .epochs = 2, .steps = 50, .loss = 0.5};

    for (progress.step = 1; progress.step <= 49; progress.step++)
        CHECK_EQ(ddp_report(ddp, &progress, NULL), DDP_OK);
    CHECK_EQ(shim_end_next(&end)->progress.step, 1);
    (void)take_due(&end, begun_us);
    CHECK_EQ(ddp_report(ddp, &progress, NULL), DDP_OK);
    CHECK_EQ(shim_end_next(&end)->progress.step, 50);
    progress.step = 51;
    progress.steps = 0;
    CHECK_EQ(ddp_committed(ddp, 51, NULL), DDP_OK);
    CHECK_EQ(shim_end_next(&end)->progress.checkpoint_step, 51);
    CHECK_EQ(ddp_report(ddp, &progress, NULL), DDP_OK);
    told = take_due(&end, begun_us);
    ddp_leave(&ddp); /* the skipped report is sent now */
    CHECK_EQ(told != 0 ? told : shim_end_next(&end)->progress.step, 51);
    shim_end_close(&end);
}

/* The caller gives times of the steps since its last call; the shim gets totals, so a lost message
 * does no harm. */
TEST(times_add_up_and_a_phase_is_told_at_once)
{
    const uint64_t begun_us = mono_us();
    struct shim_end end;
    struct ddp *ddp;
    struct ddp_progress progress = {
        .timed_steps = 1, .step_s = 0.5, .data_s = 0.25, .wait_s = 0.125};
    const struct msg *msg;

    CHECK_EQ(setenv("DDP_SHIM_PROTOCOL", "2", 1),
             0); /* NOLINT(concurrency-mt-unsafe): one thread */
    ddp = shim_end_open(&end);
    for (progress.step = 1; progress.step <= 4; progress.step++)
        CHECK_EQ(ddp_report(ddp, &progress, NULL), DDP_OK);
    CHECK_EQ(shim_end_next(&end)->progress.timed_steps, 1);
    (void)take_due(&end, begun_us);
    progress.timed_steps = 0;
    progress.phase = DDP_VALIDATING;
    CHECK_EQ(ddp_report(ddp, &progress, NULL), DDP_OK);
    msg = shim_end_next(&end);
    CHECK_EQ(msg->progress.phase, PROGRESS_VALIDATING);
    CHECK_EQ(msg->progress.timed_steps, 4);
    CHECK_EQ(msg->progress.step_us, 2000000);
    CHECK_EQ(msg->progress.data_us, 1000000);
    CHECK_EQ(msg->progress.wait_us, 500000);
    ddp_leave(&ddp);
    shim_end_close(&end);
    CHECK_EQ(unsetenv("DDP_SHIM_PROTOCOL"), 0); /* NOLINT(concurrency-mt-unsafe): one thread */
    ddp = shim_end_open(&end);                  /* a shim of version 1 */
    CHECK_EQ(ddp_report(ddp, &progress, NULL), DDP_OK);
    CHECK_EQ(shim_end_next(&end)->progress.phase, PROGRESS_STEPS);
    ddp_leave(&ddp);
    shim_end_close(&end);
}

/* The shim does not read: no call blocks, and only whole frames arrive in the end. */
TEST(a_shim_that_does_not_read_blocks_nobody)
{
    struct shim_end end;
    struct ddp *ddp = shim_end_open(&end);
    struct ddp_progress progress = {.is_urgent = 1, .loss = 0.5};
    uint64_t last = 0;

    for (progress.step = 1; progress.step <= 20000; progress.step++)
        CHECK_EQ(ddp_report(ddp, &progress, NULL), DDP_OK);
    for (int i = 0; i < 100; i++) {
        const struct msg *msg = shim_end_next(&end);

        CHECK_EQ(msg->type, MSG_TYPE_PROGRESS);
        CHECK(msg->progress.step > last);
        last = msg->progress.step;
    }
    ddp_leave(&ddp);
    shim_end_close(&end);
}

static enum ddp_status join_after(const void *bytes, size_t byte_count, struct ddp_error *error)
{
    struct shim_end end;
    struct ddp *ddp = shim_end_open(&end);
    char blob[DDP_BLOB_BYTES_MAX];
    size_t blob_bytes = 0;
    enum ddp_status status;

    shim_end_send(&end, bytes, byte_count);
    CHECK_EQ(shutdown(end.fd, SHUT_WR), 0);
    status = ddp_join(ddp, blob, &blob_bytes, sizeof blob, 60, error);
    ddp_leave(&ddp);
    shim_end_close(&end);
    return status;
}

TEST(a_rude_shim_is_an_error_and_no_crash)
{
    static const char world[] =
        "{\"type\":\"world\",\"job_id\":\"9\",\"generation\":3,\"blob\":\"bWluZQ==\"}";
    struct ddp_error error;
    char bytes[sizeof world + 4] = {0, 0, 0, (char)(sizeof world - 1)};

    memcpy(bytes + 4, world, sizeof world - 1);
    CHECK_EQ(join_after(bytes, sizeof world + 3, &error), DDP_OK);
    for (size_t cut = 0; cut < sizeof world + 3; cut++)
        CHECK_EQ(join_after(bytes, cut, &error), DDP_CLOSED);
    CHECK_EQ(join_after("\0\0\0\0", 4, &error), DDP_BAD_INPUT);
    CHECK_EQ(join_after("\0\0\0\2{}", 6, &error), DDP_BAD_INPUT);
    CHECK_EQ(join_after("\0\x10\0\0", 4, &error), DDP_TOO_BIG);
    CHECK_EQ(join_after("GET / HTTP/1.1\r\n", 16, &error), DDP_BAD_INPUT);
    CHECK(strstr(error.text, "HTTP") != NULL);
}

TEST(after_garbage_reports_still_go_out)
{
    struct shim_end end;
    struct ddp *ddp = shim_end_open(&end);
    struct ddp_progress progress = {.step = 1, .is_urgent = 1};
    struct ddp_error error = {.text = ""};

    shim_end_send_json(&end, "{}");
    CHECK_EQ(ddp_report(ddp, &progress, &error), DDP_BAD_INPUT);
    CHECK(error.text[0] != '\0');
    CHECK_EQ(shim_end_next(&end)->progress.step, 1);
    CHECK_EQ(ddp_should_stop(ddp, NULL), DDP_GO_ON);
    ddp_leave(&ddp);
    shim_end_close(&end);
}

TEST(a_stop_of_the_shim_says_how_much_time_is_left)
{
    struct shim_end end;
    struct ddp *ddp = shim_end_open(&end);
    struct msg msg = {.type = MSG_TYPE_WORKER_STOP};
    struct timespec now;
    double left = 0;

    CHECK_EQ(ddp_should_stop(ddp, &left), DDP_GO_ON);
    CHECK_EQ(ddp_should_checkpoint(ddp, 0), 0);
    CHECK(left < 0);
    CHECK_EQ(clock_gettime(CLOCK_BOOTTIME, &now), 0);
    msg.worker_stop.signal = 15;
    msg.worker_stop.kill_at_us = ((uint64_t)now.tv_sec + 1000) * 1000000;
    shim_end_send_msg(&end, &msg);
    CHECK_EQ(ddp_should_stop(ddp, &left), DDP_STOP_ASKED);
    CHECK(left > 900 && left <= 1000);
    CHECK_EQ(ddp_should_checkpoint(ddp, 0), 1);
    CHECK_EQ(ddp_should_checkpoint(ddp, 0), 0);
    msg.worker_stop.kill_at_us = 1; /* long ago */
    shim_end_send_msg(&end, &msg);
    CHECK_EQ(ddp_should_stop(ddp, &left), DDP_STOP_ASKED);
    CHECK(left == 0);
    ddp_leave(&ddp);
    shim_end_close(&end);
}

TEST(a_shim_that_has_gone_is_a_stop)
{
    struct shim_end end;
    struct ddp *ddp = shim_end_open(&end);
    struct ddp_error error;
    double left = -1;
    size_t byte_count = 0;

    shim_end_close(&end);
    CHECK_EQ(ddp_should_stop(ddp, &left), DDP_STOP_LAUNCHER);
    CHECK(left == 0);
    CHECK_EQ(ddp_join(ddp, NULL, &byte_count, 0, 60, &error), DDP_CLOSED);
    CHECK_EQ(ddp_report(ddp, &(struct ddp_progress){.step = 1}, &error), DDP_CLOSED);
    CHECK_EQ(ddp_fail(ddp, "nobody listens", &error), DDP_CLOSED);
    ddp_leave(&ddp);
}

/* A fork, like a DataLoader's worker, has the descriptor and the handle, and must not send messages
 * for the rank. */
TEST(a_fork_says_nothing)
{
    struct shim_end end;
    struct ddp *ddp = shim_end_open(&end);
    const struct ddp_progress progress = {.step = 1, .is_urgent = 1};
    size_t byte_count = 0;
    int any = 0, status;
    const pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        const int is_silent =
            ddp_report(ddp, &progress, NULL) == DDP_FORKED &&
            ddp_committed(ddp, 1, NULL) == DDP_FORKED && ddp_fail(ddp, "x", NULL) == DDP_FORKED &&
            ddp_join(ddp, NULL, &byte_count, 0, 0, NULL) == DDP_FORKED &&
            ddp_barrier(ddp, 0, NULL) == DDP_FORKED &&
            ddp_any(ddp, 1, &any, 0, NULL) == DDP_FORKED &&
            ddp_fence(ddp, ".", NULL) == DDP_FORKED &&
            ddp_commit(ddp, 1, NULL, NULL, NULL) == DDP_FORKED &&
            ddp_should_stop(ddp, NULL) == DDP_GO_ON && ddp_should_checkpoint(ddp, 1e-9) == 0;

        ddp_leave(&ddp);
        _exit(is_silent ? 0 : 1);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK(shim_end_is_quiet(&end));
    CHECK_EQ(ddp_report(ddp, &progress, NULL), DDP_OK); /* the parent's handle still works */
    CHECK_EQ(shim_end_next(&end)->progress.step, 1);
    ddp_leave(&ddp);
    shim_end_close(&end);
}

struct crowd {
    struct ddp *ddp;
    atomic_bool is_over;
    atomic_uint calls;
};

static void *call_often(void *owner)
{
    struct crowd *crowd = owner;
    struct ddp_progress progress = {.loss = 1, .is_urgent = 1};

    while (!atomic_load(&crowd->is_over)) {
        progress.step++;
        (void)ddp_report(crowd->ddp, &progress, NULL);
        (void)ddp_committed(crowd->ddp, progress.step, NULL);
        (void)ddp_should_checkpoint(crowd->ddp, 1);
        (void)ddp_fail(crowd->ddp, "a thread", NULL);
        atomic_fetch_add(&crowd->calls, 1);
    }
    return NULL;
}

/* A join that waits does not block other threads, and only whole messages arrive. */
TEST(threads_share_a_handle)
{
    struct shim_end end;
    struct crowd crowd = {.ddp = shim_end_open(&end)};
    pthread_t threads[4];
    char blob[16];
    size_t byte_count = 0;
    uint32_t joins = 0;

    for (int i = 0; i < 4; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, call_often, &crowd), 0);
    CHECK_EQ(ddp_join(crowd.ddp, blob, &byte_count, sizeof blob, 0, NULL), DDP_TIMEOUT);
    for (int i = 0; i < 2000 || joins == 0; i++)
        joins += shim_end_next(&end)->type == MSG_TYPE_WORKER_JOIN;
    shim_end_send_world(&end, 3, "mine");
    CHECK_EQ(ddp_join(crowd.ddp, blob, &byte_count, sizeof blob, 60, NULL), DDP_OK);
    atomic_store(&crowd.is_over, true);
    CHECK_EQ(shutdown(end.fd, SHUT_RDWR), 0);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(joins, 1);
    CHECK(atomic_load(&crowd.calls) > 0);
    ddp_leave(&crowd.ddp);
    shim_end_close(&end);
}

/* How a fork ends when its parent sends this signal: SIGALRM if the signal did not end it. */
static int end_by_parent(int number)
{
    const pid_t child = fork();
    int status = -1;

    if (child == 0) {
        (void)alarm(60);
        for (;;)
            (void)pause();
    }
    CHECK_EQ(kill(child, number), 0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    return status;
}

/* The same when another process sends the signal, as a shim does to a rank's fork; 0: the fork goes
 * on. */
static int end_by_another(int number)
{
    const pid_t child = fork();
    int status = -1;

    if (child == 0) {
        const pid_t own = getpid(), sender = fork();

        if (sender == 0)
            _exit(kill(own, number) == 0 ? 0 : 1);
        _exit(sender > 0 && waitpid(sender, &status, 0) == sender && status == 0 ? 0 : 1);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    return status;
}

TEST(a_fork_can_be_ended_by_its_parent)
{
    struct shim_end end;
    struct ddp *ddp = shim_end_open(&end);

    CHECK_EQ(ddp_catch_signals(ddp, NULL), DDP_OK);
    CHECK_EQ(end_by_parent(SIGTERM), SIGTERM);
    CHECK_EQ(end_by_parent(SIGUSR1), SIGUSR1);
    CHECK_EQ(end_by_another(SIGTERM), 0); /* a stop of the whole group is meant for the parent */
    CHECK_EQ(ddp_should_stop(ddp, NULL), DDP_GO_ON);
    CHECK_EQ(kill(getpid(), SIGTERM), 0);
    CHECK_EQ(ddp_should_stop(ddp, NULL), DDP_STOP_SIGNAL);
    ddp_leave(&ddp);
    shim_end_close(&end);
}

TEST_MAIN
