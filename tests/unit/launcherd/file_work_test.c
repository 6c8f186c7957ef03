/* Work on files, on threads: deadlines, threads that hang, and what they do not hold up. A semaphore stands for a
 * disk: calls hang until it is posted. */
#include "common/io/file_work.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/test.h"

#define QUICK_MS 20u
#define NEVER_MS 600000u

struct call {
    struct file_work work;
    uint32_t number;
};

static uv_loop_t loop;
static uv_timer_t alive; /* as the handles of a daemon: the loop runs */
static struct file_works *works;
static sem_t disk;
static atomic_uint runs, drops, side_by_side, most_side_by_side, order_count;
static uint32_t order[FILE_WORKS_MAX + 100];
static uint32_t done_count, late_count;
static char late_text[256];

static void drop(struct file_work *work)
{
    atomic_fetch_add(&drops, 1);
    free(work);
}

static void run_at_once(struct file_work *work)
{
    struct call *call = (struct call *)work;

    order[atomic_fetch_add(&order_count, 1)] = call->number;
    atomic_fetch_add(&runs, 1);
}

static void run_on_disk(struct file_work *work)
{
    uint32_t now = atomic_fetch_add(&side_by_side, 1) + 1, most = atomic_load(&most_side_by_side);

    while (now > most && !atomic_compare_exchange_weak(&most_side_by_side, &most, now))
        continue;
    file_work_at(work, FILE_DISK_LOGS, "mkdir");
    while (sem_wait(&disk) != 0)
        continue;
    atomic_fetch_sub(&side_by_side, 1);
    run_at_once(work);
}

static void on_done(struct file_work *work, const char *late)
{
    (void)work;
    done_count++;
    late_count += late != NULL;
    if (late != NULL)
        (void)snprintf(late_text, sizeof late_text, "%s", late);
}

static struct call *new_call(enum file_lane lane, uint32_t limit_ms,
                             void (*run)(struct file_work *work))
{
    struct call *call = calloc(1, sizeof *call);

    CHECK(call != NULL);
    call->work.lane = lane;
    call->work.limit_ms = limit_ms;
    call->work.run = run;
    call->work.done = on_done;
    call->work.drop = drop;
    return call;
}

static void wait_for(const atomic_uint *count, uint32_t wanted)
{
    while (atomic_load(count) < wanted)
        (void)usleep(1000); /* a thread without a loop: nothing else tells */
}

static struct call *start(enum file_lane lane, uint32_t limit_ms,
                          void (*run)(struct file_work *work))
{
    struct call *call = new_call(lane, limit_ms, run);

    CHECK(file_work_start(works, &call->work));
    return call;
}

/* The deadlines of work that has begun, or is queued, are over from now on. */
static void make_late(struct call **calls, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        calls[i]->work.limit_ms = 1;
    (void)start(FILE_LANE_KEEP, NEVER_MS, run_at_once); /* the deadlines are looked at again */
}

static void on_alive(uv_timer_t *timer)
{
    (void)timer;
}

static void begin(void)
{
    struct err err;

    CHECK_EQ(uv_loop_init(&loop), 0);
    CHECK_EQ(sem_init(&disk, 0, 0), 0);
    (void)uv_timer_init(&loop, &alive);
    (void)uv_timer_start(&alive, on_alive, NEVER_MS, 0);
    CHECK_EQ(file_works_open(&works, &loop, "/var/log/ddp", "/var/lib/ddp", &err), STATUS_OK);
    atomic_store(&runs, 0);
    atomic_store(&drops, 0);
    atomic_store(&order_count, 0);
    atomic_store(&side_by_side, 0);
    atomic_store(&most_side_by_side, 0);
    done_count = late_count = 0;
}

static void run_until(const uint32_t *count, uint32_t wanted)
{
    while (*count < wanted)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

static void run_until_dropped(uint32_t wanted)
{
    while (atomic_load(&drops) < wanted)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

static void end(void)
{
    uv_close((uv_handle_t *)&alive, NULL);
    file_works_close(works);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_EQ(uv_loop_close(&loop), 0);
    file_works_free(&works);
}

TEST(work_runs_and_its_result_comes)
{
    begin();
    (void)start(FILE_LANE_START, NEVER_MS, run_at_once);
    CHECK_EQ(done_count, 0); /* never within the call */
    run_until(&done_count, 1);
    CHECK_EQ(late_count, 0);
    end();
    CHECK_EQ(atomic_load(&runs), 1);
    CHECK_EQ(atomic_load(&drops), 1);
}

TEST(a_disk_that_hangs_is_named_and_holds_up_its_own_work_only)
{
    struct call *call;

    begin();
    call = start(FILE_LANE_START, NEVER_MS, run_on_disk);
    wait_for(&side_by_side, 1);
    (void)start(FILE_LANE_REMOVE, NEVER_MS, run_at_once);
    run_until(&done_count, 1);
    CHECK_EQ(late_count, 0); /* the other work */
    make_late(&call, 1);
    run_until(&done_count, 3);
    CHECK_EQ(late_count, 1);
    CHECK_STR(late_text,
              "the disk of /var/log/ddp (logs) does not answer: mkdir took longer than 0 s");
    CHECK_EQ(file_works_hanging(works), 1);
    CHECK_EQ(atomic_load(&runs), 2); /* its thread still needs it */
    CHECK_EQ(sem_post(&disk), 0);
    run_until_dropped(3);
    CHECK_EQ(file_works_hanging(works), 0);
    CHECK_EQ(done_count, 3); /* each once */
    end();
}

TEST(threads_that_hang_are_bounded_and_later_work_fails_by_name)
{
    enum { COUNT = 12, THREADS = 4 };
    struct call *calls[COUNT];

    begin();
    for (uint32_t i = 0; i < COUNT; i++)
        calls[i] = start(FILE_LANE_START, NEVER_MS, run_on_disk);
    wait_for(&side_by_side, THREADS);
    make_late(calls, COUNT);
    run_until(&done_count, COUNT + 1);
    CHECK_EQ(late_count, COUNT);
    CHECK_EQ(atomic_load(&most_side_by_side), THREADS);
    CHECK_EQ(file_works_hanging(works), THREADS);
    CHECK_STR(late_text,
              "the disk of /var/log/ddp (logs) does not answer: mkdir of an earlier order "
              "took longer than 0 s");
    for (uint32_t i = 0; i < THREADS; i++)
        CHECK_EQ(sem_post(&disk), 0);
    (void)start(FILE_LANE_START, NEVER_MS,
                run_at_once); /* when the disk answers, so does the lane */
    run_until_dropped(COUNT + 2);
    CHECK_EQ(late_count, COUNT);
    CHECK_EQ(atomic_load(&runs), THREADS + 2); /* those that were never begun never ran */
    end();
}

TEST(work_of_one_key_runs_in_order_whatever_its_lane)
{
    begin();
    for (uint32_t i = 0; i < 30; i++) {
        struct call *call =
            new_call(i % 3 == 0 ? FILE_LANE_START : FILE_LANE_REMOVE, NEVER_MS, run_at_once);

        call->number = i;
        call->work.key = file_work_key("/var/lib/ddp/run/a");
        CHECK(file_work_start(works, &call->work));
    }
    run_until(&done_count, 30);
    for (uint32_t i = 0; i < 30; i++)
        CHECK_EQ(order[i], i);
    end();
}

TEST(work_behind_a_late_one_of_its_key_waits_for_it)
{
    struct call *first, *second;

    begin();
    first = new_call(FILE_LANE_START, NEVER_MS, run_on_disk);
    second = new_call(FILE_LANE_REMOVE, 0, run_at_once);
    first->number = 1;
    second->number = 2;
    first->work.key = second->work.key = file_work_key("/var/lib/ddp/run/a");
    CHECK(file_work_start(works, &first->work));
    CHECK(file_work_start(works, &second->work));
    wait_for(&side_by_side, 1);
    make_late(&first, 1);
    run_until(&done_count, 2);
    CHECK_EQ(late_count, 1);
    CHECK_EQ(atomic_load(&runs), 1); /* what make_late has started */
    CHECK_EQ(sem_post(&disk), 0);
    run_until(&done_count, 3);
    CHECK_EQ(order[1], 1);
    CHECK_EQ(order[2], 2);
    end();
}

/* -- threads that stay -- */

static pthread_key_t at_end;
static atomic_uint ended;
static pid_t last_thread;

static void on_thread_end(void *value)
{
    (void)value;
    atomic_fetch_add(&ended, 1);
}

static void run_and_be_known(struct file_work *work)
{
    (void)pthread_setspecific(at_end, &ended);
    last_thread = gettid();
    run_at_once(work);
}

static void run_with_a_child(struct file_work *work)
{
    work->keeps_thread = true;
    run_and_be_known(work);
}

static void run_on_disk_and_be_known(struct file_work *work)
{
    (void)pthread_setspecific(at_end, &ended);
    run_on_disk(work);
}

/* A child that dies with its parent dies with the thread that has started it. */
TEST(a_thread_with_a_child_does_not_end_for_want_of_work)
{
    pid_t parent;

    CHECK_EQ(pthread_key_create(&at_end, on_thread_end), 0);
    atomic_store(&ended, 0);
    begin();
    (void)start(FILE_LANE_START, NEVER_MS, run_and_be_known);
    run_until(&done_count, 1);
    wait_for(&ended, 1); /* as any other */
    (void)start(FILE_LANE_KEEP, NEVER_MS, run_on_disk_and_be_known);
    wait_for(&side_by_side, 1);
    (void)start(FILE_LANE_START, NEVER_MS, run_with_a_child);
    run_until(&done_count, 2);
    parent = last_thread;
    CHECK_EQ(sem_post(&disk), 0);
    wait_for(&ended, 2); /* the other one, which began to be idle later */
    (void)start(FILE_LANE_START, NEVER_MS, run_and_be_known);
    run_until(&done_count, 4);
    CHECK_EQ(parent, last_thread);
    CHECK_EQ(atomic_load(&ended), 2);
    end();
    wait_for(&ended, 3);
    CHECK_EQ(pthread_key_delete(at_end), 0);
}

TEST(the_queue_is_bounded)
{
    uint32_t taken = 0;

    begin();
    for (uint32_t i = 0; i < FILE_WORKS_MAX + 100; i++)
        taken += file_work_start(works, &new_call(FILE_LANE_KEEP, 0, run_on_disk)->work);
    CHECK(taken >= FILE_WORKS_MAX &&
          taken <= FILE_WORKS_MAX + 1); /* a thread may have one already */
    CHECK_EQ(atomic_load(&drops), FILE_WORKS_MAX + 100 - taken);
    for (uint32_t i = 0; i < taken; i++)
        CHECK_EQ(sem_post(&disk), 0);
    run_until(&done_count, taken);
    end();
    CHECK_EQ(atomic_load(&most_side_by_side), 1);
}

TEST(work_that_is_forgotten_runs_and_tells_nobody)
{
    struct call *call;

    begin();
    call = new_call(FILE_LANE_KEEP, NEVER_MS, run_at_once);
    CHECK(file_work_start(works, &call->work));
    file_work_forget(&call->work);
    end();
    CHECK_EQ(done_count, 0);
    CHECK_EQ(atomic_load(&runs), 1);
    CHECK_EQ(atomic_load(&drops), 1);
}

TEST(what_is_queued_at_the_end_still_runs)
{
    begin();
    for (uint32_t i = 0; i < 20; i++)
        (void)start(FILE_LANE_REMOVE, 0, run_at_once);
    end();
    CHECK_EQ(atomic_load(&runs), 20);
    CHECK_EQ(done_count, 20);
}

TEST(a_thread_that_hangs_does_not_hold_up_the_end)
{
    const uint64_t before = uv_hrtime();

    begin();
    (void)start(FILE_LANE_REMOVE, 0, run_on_disk);
    (void)start(FILE_LANE_KEEP, NEVER_MS, run_on_disk);
    wait_for(&side_by_side, 2);
    end();
    CHECK(uv_hrtime() - before < 60ull * 1000000000u);
    CHECK_EQ(late_count, 2);
    CHECK_EQ(atomic_load(&drops), 0);
    CHECK_EQ(sem_post(&disk), 0); /* the disk comes back after the end of the loop */
    CHECK_EQ(sem_post(&disk), 0);
    wait_for(&drops, 2);
}

TEST(waiting_before_the_loop_runs)
{
    begin();
    file_work_wait(works, &new_call(FILE_LANE_KEEP, NEVER_MS, run_at_once)->work);
    CHECK_EQ(done_count, 1);
    CHECK_EQ(late_count, 0);
    (void)start(FILE_LANE_KEEP, NEVER_MS, run_on_disk);
    wait_for(&side_by_side, 1);
    file_work_wait(works, &new_call(FILE_LANE_KEEP, QUICK_MS, run_at_once)->work);
    CHECK_EQ(done_count, 2);
    CHECK_EQ(late_count, 1);
    CHECK(strstr(late_text, "/var/log/ddp (logs) does not answer: mkdir of an earlier") != NULL);
    CHECK_EQ(sem_post(&disk), 0);
    (void)start(FILE_LANE_KEEP, NEVER_MS, run_at_once);
    run_until_dropped(4);
    CHECK_EQ(late_count, 1);
    end();
}

TEST_MAIN
