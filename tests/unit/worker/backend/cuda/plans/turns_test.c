/* Of several processes that need the same plans one makes them. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/unit/worker/backend/cuda/plans/keep_fake.h"

/* Takes the lock of these requests in another process, which then has it until it gets a signal or, for
 * `plans`, until it has built them. Returns when it has the lock. */
static pid_t hold_lock(const char *folder, bool builds)
{
    int ready[2];
    char byte;
    pid_t pid;

    CHECK_EQ(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        struct plan_set *set = keep_open(folder, 0);
        struct plan_lock lock;
        struct err err;

        if (!builds) {
            CHECK_EQ(plan_lock_take(&lock, &set->cache, plan_set_name(set, &keep_request, 1), 0,
                                    NULL, NULL),
                     PLAN_LOCK_TAKEN);
            CHECK_EQ(write(ready[1], "x", 1), 1);
            for (;;)
                (void)pause();
        }
        CHECK_EQ(write(ready[1], "x", 1), 1);
        CHECK_EQ(cuda_plans.build(set, &keep_request, 1, &err), STATUS_OK);
        cuda_plans.counts(set, &keep.counts);
        cuda_plans.close(&set);
        _exit((int)(keep.counts.built * 10 + keep.counts.tuned));
    }
    CHECK(pid > 0);
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    CHECK_EQ(close(ready[0]), 0);
    CHECK_EQ(close(ready[1]), 0);
    return pid;
}

static pid_t holder; /* is ended when the wait has been seen */

static void end_holder(void *user, enum plan_phase phase, uint32_t done, uint32_t total)
{
    (void)user;
    (void)done;
    (void)total;
    if (phase != PLAN_WAITING || holder == 0)
        return;
    CHECK_EQ(kill(holder, SIGKILL), 0);
    CHECK_EQ(waitpid(holder, NULL, 0), holder);
    holder = 0;
}

/* What died with the lock has not built: this one does, and leaves the times to a later start. */
TEST(a_dead_holder_is_not_waited_for)
{
    const char *folder = keep_folder("dead");

    keep_reset(1000000);
    keep.options.tunes_cold = true;
    holder = hold_lock(folder, false);
    keep.options.progress = end_holder;
    (void)keep_build(folder, 0);
    CHECK_EQ(holder, 0);
    CHECK_EQ(keep.counts.built, 1);
    CHECK_EQ(keep.counts.tuned, 0);
    CHECK(!keep.counts.may_time);
    (void)keep_build(folder, 0);
    CHECK_EQ(keep.counts.tuned, 1);
}

TEST(tune_all_waits_and_times_what_is_left)
{
    const char *folder = keep_folder("left");

    keep_reset(PLAN_TUNE_ALL);
    keep.options.tunes_cold = true;
    holder = hold_lock(folder, false);
    keep.options.progress = end_holder;
    (void)keep_build(folder, 0);
    CHECK_EQ(holder, 0);
    CHECK_EQ(keep.counts.built, 1);
    CHECK_EQ(keep.counts.tuned, 1);
}

static bool stop_now(void *user)
{
    (void)user;
    return true;
}

TEST(a_wait_ends_when_the_plans_are_not_needed_any_more)
{
    const char *folder = keep_folder("stop");
    struct plan_set *set;
    struct err err;

    keep_reset(0);
    holder = hold_lock(folder, false);
    keep.options.stops = stop_now;
    set = keep_open(folder, 0);
    CHECK_EQ(cuda_plans.build(set, &keep_request, 1, &err), STATUS_CLOSED);
    CHECK_EQ(keep.proposals, 0);
    cuda_plans.close(&set);
    end_holder(NULL, PLAN_WAITING, 0, 0);
}

TEST(at_the_end_of_the_wait_a_process_goes_on_alone)
{
    const char *folder = keep_folder("busy");
    struct plan_cache cache;
    struct plan_lock lock;
    char why[320];

    keep_reset(0);
    holder = hold_lock(folder, false);
    CHECK(plan_cache_open(&cache, folder, why, sizeof why));
    {
        struct plan_set *set = keep_open(folder, 0);

        CHECK_EQ(plan_lock_take(&lock, &cache, plan_set_name(set, &keep_request, 1), 0, NULL, NULL),
                 PLAN_LOCK_BUSY);
        CHECK_EQ(plan_lock_take(&lock, &cache, 1, 0, NULL, NULL), PLAN_LOCK_TAKEN);
        plan_lock_release(&lock);
        cuda_plans.close(&set);
    }
    end_holder(NULL, PLAN_WAITING, 0, 0);
}

TEST(several_processes_build_and_time_a_plan_once)
{
    const char *folder = keep_folder("several");
    uint32_t built = 0, tuned = 0;
    pid_t pids[6];

    keep_reset(PLAN_TUNE_ALL);
    keep.options.tunes_cold = true;
    for (size_t i = 0; i < sizeof pids / sizeof pids[0]; i++)
        pids[i] = hold_lock(folder, true);
    for (size_t i = 0; i < sizeof pids / sizeof pids[0]; i++) {
        int status;

        CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
        CHECK(WIFEXITED(status));
        built += (uint32_t)WEXITSTATUS(status) / 10;
        tuned += (uint32_t)WEXITSTATUS(status) % 10;
    }
    CHECK_EQ(built, 1);
    CHECK_EQ(tuned, 1);
}

TEST_MAIN
