/* A rank dies, stops or leaves while others are in collectives: all others name it, and none
 * hangs. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/comm/group.h"
#include "tests/lib/test.h"

#define COUNT 100000
#define LIMIT_US UINT64_C(30000000)

static float values[COUNT];

/* How ranks behave. */
struct script {
    uint32_t idle_rank;    /* sleeps and calls no collective; UINT32_MAX: none */
    uint32_t leaving_rank; /* leaves after 20 rounds */
    bool broadcasts;       /* instead of all-reduces */
};

/* Runs collectives without end; prints "ready" once they run, and the error that ends them. */
static int stream(struct comm *comm, uint32_t rank, uint32_t world, int out, void *user)
{
    const struct script *script = user;
    struct err err = {.text = ""};
    enum status status = STATUS_OK;

    (void)world;
    for (uint32_t round = 0; status == STATUS_OK; round++) {
        if (round == 20)
            (void)dprintf(out, "ready\n");
        if (round == 20 && rank == script->leaving_rank)
            return 0;
        if (round == 20 && rank == script->idle_rank)
            for (;;)
                (void)pause();
        memset(values, 0, sizeof values);
        if (script->broadcasts)
            status = comm_broadcast(comm, values, sizeof values, round % world, &err);
        else
            status = comm_all_reduce_sum(comm, values, COUNT, &err);
    }
    (void)dprintf(out, "%s: %s\n", status_name(status), err.text);
    return status == STATUS_PEER_LOST ? 0 : 1;
}

static void start_stream(struct group *group)
{
    group_start(group);
    group_release(group);
    for (uint32_t i = 0; i < group->world; i++)
        group_expect(group, i, "ready\n");
}

/* Every rank but `victim` must end in time with `words` in its text, which say how it was noticed. */
static void expect_all_but(struct group *group, uint32_t victim, const char *words)
{
    uint64_t begin_us = group_now_us();

    for (uint32_t i = 0; i < group->world; i++) {
        int rc;

        if (i == victim)
            continue;
        rc = group_wait(group, i);
        if (rc != 0 || strstr(group->texts[i], words) == NULL)
            FAIL("rank %u ended with %d, \"%s\" is not in: %s", i, rc, words, group->texts[i]);
    }
    if (group_now_us() - begin_us > LIMIT_US)
        FAIL("rank %u's loss took %llu ms to notice", victim,
             (unsigned long long)(group_now_us() - begin_us) / 1000);
    (void)printf("# %u of %u: noticed by all after %llu ms\n", victim, group->world,
                 (unsigned long long)(group_now_us() - begin_us) / 1000);
}

/* Runs `world` groups and kills a different rank in each; the error of all others ends in
 * `during`. */
static void kill_each_of(uint32_t world, group_body work, struct script *script, const char *during)
{
    for (uint32_t victim = 0; victim < world; victim++) {
        struct group group = group_of(world, work, script);
        char words[80];

        (void)snprintf(words, sizeof words,
                       "PEER_LOST: rank %u was lost (connection closed) during%s", victim, during);
        start_stream(&group);
        CHECK_EQ(kill(group.pids[victim], SIGKILL), 0);
        expect_all_but(&group, victim, words);
        CHECK_EQ(group_wait(&group, victim), 128 + SIGKILL);
    }
}

/* No collective of this library runs: the peers wait in another library's collective. */
static int work_elsewhere(struct comm *comm, uint32_t rank, uint32_t world, int out, void *user)
{
    struct err err = {.text = ""};

    (void)rank;
    (void)world;
    (void)user;
    (void)dprintf(out, "ready\n");
    while (comm_lost(comm, "training", &err) == STATUS_OK)
        (void)usleep(1000);
    (void)dprintf(out, "%s: %s\n", status_name(err.status), err.text);
    return 0;
}

TEST(a_loss_is_seen_outside_collectives_too)
{
    kill_each_of(4, work_elsewhere, NULL, " training");
}

/* Rank 0 leaves in order; the others notice it although they wait in no collective. */
static int see_rank_0_leave(struct comm *comm, uint32_t rank, uint32_t world, int out, void *user)
{
    struct err err = {.text = ""};

    (void)world;
    (void)user;
    if (comm_barrier(comm, &err) != STATUS_OK)
        FAIL("the barrier: %s", err.text);
    while (rank != 0 && comm_check_next(comm, "validation", &err) == STATUS_OK)
        (void)usleep(1000);
    if (comm_lost(comm, "training", &err) != STATUS_OK)
        FAIL("a rank that left in order counts as lost: %s", err.text);
    (void)dprintf(out, "%s: %s\n", status_name(err.status), err.text);
    return 0;
}

TEST(a_rank_that_left_is_seen_outside_collectives)
{
    struct group group = group_of(3, see_rank_0_leave, NULL);

    group_start(&group);
    group_release(&group);
    for (uint32_t rank = 0; rank < 3; rank++) {
        CHECK_EQ(group_wait(&group, rank), 0);
        if (rank > 0 && strcmp(group.texts[rank],
                               "PEER_LOST: rank 0 has left, validation number 2 needs it\n") != 0)
            FAIL("rank %u: %s", rank, group.texts[rank]);
    }
}

static struct script plain(void)
{
    return (struct script){.idle_rank = UINT32_MAX, .leaving_rank = UINT32_MAX};
}

TEST(killed_rank_is_named_by_all)
{
    struct script script = plain();

    kill_each_of(2, stream, &script, "");
    kill_each_of(4, stream, &script, "");
    kill_each_of(5, stream, &script, "");
}

TEST(killed_rank_is_named_in_broadcasts)
{
    struct script script = plain();

    script.broadcasts = true;
    kill_each_of(4, stream, &script, "");
}

/* All ranks wait for one that does not come (rank 2, or rank 1 if rank 2 is the victim). Then
 * another rank dies, for which none of them waits directly. */
TEST(death_is_noticed_by_ranks_that_wait_for_another)
{
    for (uint32_t victim = 0; victim < 4; victim++) {
        struct script script = plain();
        struct group group = group_of(4, stream, &script);
        char words[64];

        script.idle_rank = victim == 2 ? 1 : 2;
        (void)snprintf(words, sizeof words, "rank %u was lost (connection closed) during", victim);
        start_stream(&group);
        CHECK_EQ(kill(group.pids[victim], SIGKILL), 0);
        for (uint32_t i = 0; i < 4; i++)
            if (i != victim && i != script.idle_rank) {
                CHECK_EQ(group_wait(&group, i), 0);
                CHECK(strstr(group.texts[i], words) != NULL);
            }
        CHECK_EQ(kill(group.pids[script.idle_rank], SIGKILL), 0);
        (void)group_wait(&group, script.idle_rank);
        (void)group_wait(&group, victim);
    }
}

/* A stopped process does not answer but keeps its connections open: the heartbeat finds it. */
TEST(stopped_rank_is_named_by_all)
{
    for (uint32_t victim = 0; victim < 3; victim += 2) {
        struct script script = plain();
        struct group group = group_of(3, stream, &script);
        char words[64];

        (void)snprintf(words, sizeof words, "rank %u was lost (no sign of life for 5 s)", victim);
        start_stream(&group);
        CHECK_EQ(kill(group.pids[victim], SIGSTOP), 0);
        expect_all_but(&group, victim, words);
        CHECK_EQ(kill(group.pids[victim], SIGCONT), 0);
        CHECK_EQ(group_wait(&group, victim), 0); /* wakes up, finds itself alone */
        CHECK(strstr(group.texts[victim], "PEER_LOST: rank") != NULL);
    }
}

TEST(leaving_is_not_dying)
{
    for (uint32_t leaver = 0; leaver < 3; leaver++) {
        struct script script = plain();
        struct group group = group_of(3, stream, &script);
        char words[64];

        script.leaving_rank = leaver;
        (void)snprintf(words, sizeof words, "rank %u has left, all-reduce number 21 needs it",
                       leaver);
        start_stream(&group);
        expect_all_but(&group, leaver, words);
        CHECK_EQ(group_wait(&group, leaver), 0);
    }
}

/* Ranks end one by one after their last collective; none reports an error. */
static int leave_in_turn(struct comm *comm, uint32_t rank, uint32_t world, int out, void *user)
{
    struct err err = {.text = ""};
    enum status status = STATUS_OK;

    (void)user;
    (void)world;
    for (uint32_t i = 0; i < 30 && status == STATUS_OK; i++)
        status = comm_broadcast(comm, values, sizeof values, i % world, &err);
    if (status != STATUS_OK)
        (void)dprintf(out, "rank %u: %s\n", rank, err.text);
    return status == STATUS_OK ? 0 : 1;
}

TEST(last_collective_completes_for_all)
{
    for (uint32_t i = 0; i < 20; i++) {
        struct group group = group_of(4, leave_in_turn, NULL);

        group_run(&group);
    }
}

/* A rank that lives but never enters the collective: the time-out names it. */
static int stall(struct comm *comm, uint32_t rank, uint32_t world, int out, void *user)
{
    struct err err = {.text = ""};
    enum status status = STATUS_OK;

    (void)user;
    for (uint32_t i = 0; i < 3 && status == STATUS_OK; i++)
        status = comm_barrier(comm, &err);
    if (status == STATUS_OK && rank == world - 1) {
        (void)dprintf(out, "ready\n");
        for (;;)
            (void)pause();
    }
    if (status == STATUS_OK)
        status = comm_all_reduce_sum(comm, values, COUNT, &err);
    (void)dprintf(out, "%s: %s\n", status_name(status), err.text);
    return status == STATUS_TIMEOUT ? 0 : 1;
}

TEST(stalled_rank_is_named_by_the_time_out)
{
    struct group group = group_of(3, stall, NULL);

    group.timeout_us = 10000000;
    group_start(&group);
    group_release(&group);
    group_expect(&group, 2, "ready");
    expect_all_but(&group, 2,
                   "TIMEOUT: all-reduce number 4 timed out: rank 2 did not come, it has begun 3");
    CHECK_EQ(kill(group.pids[2], SIGKILL), 0);
    (void)group_wait(&group, 2);
}

/* Rank `slow` is busy for longer than the time-out, `for_s` seconds, before it comes. */
struct late {
    uint32_t slow, for_s;
};

static int come_late(struct comm *comm, uint32_t rank, uint32_t world, int out, void *user)
{
    const struct late *late = user;
    struct err err = {.text = ""};
    enum status status = comm_barrier(comm, &err);

    (void)world;
    if (rank == late->slow) {
        comm_set_busy(comm, true);
        (void)sleep(late->for_s);
        comm_set_busy(comm, false);
    }
    if (status == STATUS_OK)
        status = comm_all_reduce_sum(comm, values, COUNT, &err);
    (void)dprintf(out, "%s: %s\n", status_name(status), err.text);
    return status == STATUS_OK ? 0 : 1;
}

TEST(a_busy_rank_is_waited_for)
{
    for (uint32_t slow = 0; slow < 2; slow++) {
        struct late late = {slow, 8};
        struct group group = group_of(3, come_late, &late);

        group.timeout_us = 5000000;
        group.busy_us = 60000000;
        group_run(&group);
    }
}

TEST(a_busy_rank_is_not_waited_for_without_end)
{
    struct late late = {2, 60};
    struct group group = group_of(3, come_late, &late);

    group.timeout_us = 5000000;
    group.busy_us = 2000000;
    group_start(&group);
    group_release(&group);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_EQ(group_wait(&group, i), 1);
        if (strstr(group.texts[i],
                   "TIMEOUT: all-reduce number 2 timed out: rank 2 did not come, it has "
                   "begun 1; it has been saving, loading or validating") == NULL)
            FAIL("rank %u: %s", i, group.texts[i]);
    }
    CHECK_EQ(kill(group.pids[2], SIGKILL), 0);
    (void)group_wait(&group, 2);
}

TEST_MAIN
