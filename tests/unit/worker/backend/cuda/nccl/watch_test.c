/* When training over NCCL is aborted, and the thread that aborts it, with a table that records its
 * calls. */
#include "worker/backend/cuda/nccl/watch.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker/backend/cuda/nccl/guard.h"

#define SECOND UINT64_C(1000000)

static bool at(struct nccl_watch *watch, enum nccl_watch_event_type type, uint64_t now_us)
{
    const struct nccl_watch_event event = {.type = type, .now_us = now_us};

    return nccl_watch_step(watch, &event);
}

TEST(steps_keep_it_quiet_and_silence_does_not)
{
    struct nccl_watch watch;
    uint64_t now = 7 * SECOND;

    nccl_watch_init(&watch, now);
    CHECK(!at(&watch, NCCL_WATCH_TICK, now + NCCL_WATCH_FIRST_US)); /* the first may take long */
    for (int i = 0; i < 100; i++) {
        now += SECOND;
        CHECK(!at(&watch, NCCL_WATCH_STEP, now));
        CHECK(!at(&watch, NCCL_WATCH_TICK, now + SECOND / 2));
    }
    CHECK(!at(&watch, NCCL_WATCH_TICK, now + NCCL_WATCH_STALL_US));
    CHECK(at(&watch, NCCL_WATCH_TICK, now + NCCL_WATCH_STALL_US + 1));
    CHECK_EQ(watch.verdict, NCCL_WATCH_STALLED);
    CHECK(!at(&watch, NCCL_WATCH_TICK, now + 2 * NCCL_WATCH_STALL_US)); /* once */
}

TEST(slow_steps_get_five_times_their_length)
{
    struct nccl_watch watch;

    nccl_watch_init(&watch, 0);
    (void)at(&watch, NCCL_WATCH_STEP, SECOND);
    CHECK_EQ(nccl_watch_limit_us(&watch), NCCL_WATCH_STALL_US);
    (void)at(&watch, NCCL_WATCH_STEP, 21 * SECOND);
    CHECK_EQ(nccl_watch_limit_us(&watch), 100 * SECOND);
    CHECK(!at(&watch, NCCL_WATCH_TICK, 121 * SECOND));
    CHECK(at(&watch, NCCL_WATCH_TICK, 121 * SECOND + 1));
}

/* Of a run whose steps all take 70 s, the second must not be taken for a stall. */
TEST(the_first_step_is_a_step_too)
{
    struct nccl_watch watch;

    nccl_watch_init(&watch, 0);
    watch.patience = 2;
    (void)at(&watch, NCCL_WATCH_STEP, 70 * SECOND);
    CHECK(!at(&watch, NCCL_WATCH_TICK, 140 * SECOND));
    CHECK_EQ(nccl_watch_limit_us(&watch), 2 * 5 * 70 * SECOND);
}

TEST(rest_is_no_silence)
{
    struct nccl_watch watch;

    nccl_watch_init(&watch, 0);
    (void)at(&watch, NCCL_WATCH_STEP, SECOND);
    (void)at(&watch, NCCL_WATCH_PAUSE, SECOND);
    CHECK(!at(&watch, NCCL_WATCH_TICK, 5000 * SECOND));
    (void)at(&watch, NCCL_WATCH_STEP, 5000 * SECOND);
    CHECK(!at(&watch, NCCL_WATCH_TICK, 5000 * SECOND + NCCL_WATCH_STALL_US));
    CHECK(at(&watch, NCCL_WATCH_TICK, 5000 * SECOND + NCCL_WATCH_STALL_US + 1));
    CHECK_EQ(watch.longest_us, SECOND); /* a pause does not count as a slow step */
}

TEST(a_step_with_a_pause_has_no_length)
{
    struct nccl_watch watch;

    nccl_watch_init(&watch, 0);
    (void)at(&watch, NCCL_WATCH_PAUSE, SECOND);
    (void)at(&watch, NCCL_WATCH_STEP, 70 * SECOND);
    CHECK_EQ(nccl_watch_limit_us(&watch), NCCL_WATCH_FIRST_US); /* none is known yet */
    (void)at(&watch, NCCL_WATCH_STEP, 140 * SECOND);
    CHECK_EQ(nccl_watch_limit_us(&watch), 350 * SECOND);
}

/* The rank's own wait for a batch is not a collective that waits for another rank. */
TEST(loading_is_no_silence)
{
    struct nccl_watch watch;

    nccl_watch_init(&watch, 0);
    (void)at(&watch, NCCL_WATCH_STEP, SECOND);
    (void)at(&watch, NCCL_WATCH_LOADING, 3 * SECOND);
    CHECK(!at(&watch, NCCL_WATCH_TICK, 5000 * SECOND));
    CHECK_EQ(nccl_watch_silent_us(&watch, 5000 * SECOND), 2 * SECOND);
    (void)at(&watch, NCCL_WATCH_LOADED, 5000 * SECOND);
    (void)at(&watch, NCCL_WATCH_LOADING, 5001 * SECOND); /* of the same step */
    (void)at(&watch, NCCL_WATCH_LOADED, 5005 * SECOND);
    CHECK_EQ(nccl_watch_silent_us(&watch, 5005 * SECOND), 3 * SECOND);
    CHECK(!at(&watch, NCCL_WATCH_TICK, 5002 * SECOND + NCCL_WATCH_STALL_US));
    CHECK(at(&watch, NCCL_WATCH_TICK, 5002 * SECOND + NCCL_WATCH_STALL_US + 1));
    CHECK_EQ(watch.verdict, NCCL_WATCH_STALLED);
}

/* The others wait in their collective while this rank loads; so this rank waits while they do. */
TEST(loading_counts_in_the_length_of_a_step)
{
    struct nccl_watch watch;

    nccl_watch_init(&watch, 0);
    (void)at(&watch, NCCL_WATCH_LOADING, 0);
    (void)at(&watch, NCCL_WATCH_LOADED, 19 * SECOND);
    (void)at(&watch, NCCL_WATCH_STEP, 20 * SECOND);
    CHECK_EQ(nccl_watch_limit_us(&watch), 100 * SECOND);
    CHECK_EQ(nccl_watch_silent_us(&watch, 21 * SECOND), SECOND); /* begins anew */
}

TEST(a_lost_peer_is_found_while_loading)
{
    const struct nccl_watch_event lost = {
        .type = NCCL_WATCH_TICK, .now_us = 9 * SECOND, .peer_lost = true};
    struct nccl_watch watch;

    nccl_watch_init(&watch, 0);
    (void)at(&watch, NCCL_WATCH_LOADING, SECOND);
    CHECK(nccl_watch_step(&watch, &lost));
    CHECK_EQ(watch.verdict, NCCL_WATCH_PEER);
}

TEST(a_lost_peer_comes_before_an_error)
{
    struct nccl_watch_event both = {
        .type = NCCL_WATCH_TICK, .now_us = 1, .peer_lost = true, .has_error = true};
    struct nccl_watch watch;

    nccl_watch_init(&watch, 0);
    CHECK(nccl_watch_step(&watch, &both));
    CHECK_EQ(watch.verdict, NCCL_WATCH_PEER);
    nccl_watch_init(&watch, 0);
    both.peer_lost = false;
    CHECK(nccl_watch_step(&watch, &both));
    CHECK_EQ(watch.verdict, NCCL_WATCH_ERROR);
}

/* -- the guard --------------------------------------------------------------------------------- */

static atomic_int aborts, given_up;
static atomic_bool is_gone, is_broken;

static void count_abort(struct nccl_link *link)
{
    (void)link;
    (void)atomic_fetch_add(&aborts, 1);
}

static enum status answer(struct nccl_link *link, struct err *err)
{
    (void)link;
    return atomic_load(&is_broken) ? err_set(err, STATUS_LIBRARY, 6, "NCCL: remote error")
                                   : STATUS_OK;
}

static bool gone(void *user, struct err *err)
{
    (void)user;
    if (atomic_load(&is_gone))
        (void)err_set(err, STATUS_PEER_LOST, 0, "rank 3 was lost (connection closed)");
    return atomic_load(&is_gone);
}

/* A test cannot let the process end, so only the thread ends. */
static void give_up(void *user, const struct err *why)
{
    (void)user;
    if (strstr(why->text, "rank 3 was lost") != NULL)
        (void)atomic_fetch_add(&given_up, 1);
    pthread_exit(NULL);
}

static atomic_bool are_captures_gone, has_waited;

/* As NCCL's, where a captured step has a collective. */
static void abort_behind_captures(struct nccl_link *link)
{
    count_abort(link);
    while (!atomic_load(&are_captures_gone))
        (void)sched_yield();
    atomic_store(&has_waited, true);
}

static const struct cuda_nccl recorder = {.check = answer, .abort = count_abort};

static const struct cuda_nccl waiter = {.check = answer, .abort = abort_behind_captures};

static struct nccl_guard *guard_over(const struct cuda_nccl *nccl, uint64_t grace_us)
{
    const struct nccl_guard_options options = {
        .nccl = nccl, .gone = gone, .give_up = give_up, .grace_us = grace_us};
    struct nccl_guard *guard;
    struct err err;

    atomic_store(&aborts, 0);
    atomic_store(&given_up, 0);
    atomic_store(&is_gone, false);
    atomic_store(&is_broken, false);
    atomic_store(&are_captures_gone, false);
    atomic_store(&has_waited, false);
    CHECK_EQ(nccl_guard_new(&guard, &options, &err), STATUS_OK);
    return guard;
}

static struct nccl_guard *guard_new(uint64_t grace_us)
{
    return guard_over(&recorder, grace_us);
}

TEST(a_fine_run_is_left_alone)
{
    struct nccl_guard *guard = guard_new(SECOND);
    struct err err;

    for (int i = 0; i < 1000; i++)
        nccl_guard_progress(guard);
    nccl_guard_loading(guard, true);
    nccl_guard_loading(guard, false);
    nccl_guard_pause(guard);
    CHECK_EQ(nccl_guard_verdict(guard, &err), STATUS_OK);
    nccl_guard_free(&guard);
    CHECK(guard == NULL);
    CHECK_EQ(atomic_load(&aborts), 0);
}

TEST(a_lost_peer_ends_the_communicator_and_the_trainer_hears_why)
{
    struct nccl_guard *guard = guard_new(60 * SECOND);
    struct err err = {.text = ""};

    atomic_store(&is_gone, true);
    while (atomic_load(&aborts) == 0)
        (void)sched_yield();
    CHECK_EQ(nccl_guard_verdict(guard, &err), STATUS_PEER_LOST);
    CHECK_STR(err.text, "rank 3 was lost (connection closed)");
    nccl_guard_free(&guard);
    CHECK_EQ(atomic_load(&aborts), 1);
    CHECK_EQ(atomic_load(&given_up), 0);
}

TEST(an_error_ends_it_too)
{
    struct nccl_guard *guard = guard_new(60 * SECOND);
    struct err err = {.text = ""};

    atomic_store(&is_broken, true);
    while (nccl_guard_verdict(guard, &err) == STATUS_OK)
        (void)sched_yield();
    CHECK_EQ(err.status, STATUS_LIBRARY);
    CHECK_STR(err.text, "NCCL: remote error");
    nccl_guard_free(&guard);
}

/* The trainer drops its captures when it has heard why; the abort ends then. */
TEST(an_abort_that_waits_for_captures_is_waited_for)
{
    struct nccl_guard *guard = guard_over(&waiter, 60 * SECOND);
    struct err err = {.text = ""};

    atomic_store(&is_gone, true);
    while (nccl_guard_verdict(guard, &err) == STATUS_OK)
        (void)sched_yield();
    CHECK_EQ(err.status, STATUS_PEER_LOST);
    atomic_store(&are_captures_gone, true);
    nccl_guard_free(&guard);
    CHECK_EQ(atomic_load(&aborts), 1);
    CHECK_EQ(atomic_load(&given_up), 0);
}

TEST(a_trainer_behind_an_abort_that_waits_is_given_up_too)
{
    static struct nccl_guard *guard; /* kept for ever, as below */

    guard = guard_over(&waiter, 1000);
    atomic_store(&is_gone, true);
    while (atomic_load(&given_up) == 0)
        (void)sched_yield();
    CHECK(!atomic_load(&has_waited));
    atomic_store(&are_captures_gone, true);
    while (!atomic_load(&has_waited)) /* its thread is gone before the next test */
        (void)sched_yield();
    CHECK(guard != NULL);
}

TEST(a_trainer_that_does_not_come_back_is_given_up)
{
    /* Kept for ever: it can't be freed, its lock went with its thread. */
    static struct nccl_guard *guard;

    guard = guard_new(1000);
    atomic_store(&is_gone, true);
    while (atomic_load(&given_up) == 0 || atomic_load(&aborts) == 0)
        (void)sched_yield();
    CHECK_EQ(atomic_load(&aborts), 1);
    CHECK(guard != NULL);
}

TEST_MAIN
