/* Jobs that wait for other jobs (--after), and arrays of jobs. */
#include "tests/unit/rendezvous/core_tools.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/core/after_list.h"
#include "tests/lib/test.h"

#define ADMIN true

static const struct rdzv_record *record_of(uint64_t id)
{
    return rdzv_job_record(core, id);
}

static enum job_state state_of(uint64_t id)
{
    return record_of(id)->state;
}

static void begin(uint32_t slots, uint32_t max_queued)
{
    begin_quotas(64, 4, 0, max_queued);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    step_hello(1, (struct msg_node_hello){.name = "node0", .instance = 1, .slots = slots});
}

struct wanted {
    uint64_t after, last;
    bool any;
    struct rdzv_after_item more; /* further jobs to wait for */
    int32_t priority;
    struct rdzv_after known;
};

static uint64_t submit(struct wanted wanted)
{
    struct msg msg = {.type = MSG_TYPE_SUBMIT};
    struct rdzv_event event = {.type = RDZV_EVENT_SUBMIT,
                               .client = 7,
                               .msg = &msg,
                               .user = "ann",
                               .is_admin = ADMIN,
                               .after = wanted.known};

    msg.submit = (struct msg_submit){.request_id = "0",
                                     .name = "job",
                                     .cwd = "/",
                                     .nodes = 1,
                                     .nproc_per_node = 1,
                                     .priority = wanted.priority};
    if (wanted.after != 0)
        event.after.items[event.after.count++] = (struct rdzv_after_item){
            wanted.after, wanted.last != 0 ? wanted.last : wanted.after, wanted.any};
    if (wanted.more.first != 0)
        event.after.items[event.after.count++] = wanted.more;
    step(event);
    return find(RDZV_REPLY_SUBMITTED) == NULL ? 0 : find(RDZV_REPLY_SUBMITTED)->job_id;
}

/* Submits the jobs of an array, one event each. Returns the id of the first; 0: refused. */
static uint64_t submit_array(const char *spec)
{
    static struct array_spec array;
    struct msg msg = {.type = MSG_TYPE_SUBMIT};
    struct rdzv_event event = {.type = RDZV_EVENT_SUBMIT,
                               .client = 7,
                               .msg = &msg,
                               .user = "ann",
                               .is_admin = ADMIN,
                               .array = &array};
    struct err err;

    CHECK_EQ(array_spec_parse(spec, &array, &err), STATUS_OK);
    msg.submit = (struct msg_submit){
        .request_id = "0", .name = "sweep", .cwd = "/", .nodes = 1, .nproc_per_node = 1};
    for (; event.array_place < array.count; event.array_place++) {
        step(event);
        if (find(RDZV_REPLY_ERROR) != NULL)
            return 0;
        if (event.array_place + 1 == array.count)
            break;
        /* nothing else happens before all jobs are stored */
        CHECK_EQ(count_of(RDZV_PERSIST), 1);
        CHECK_EQ(actions.count, 3); /* also a log line, and a notice for waiting clients */
    }
    CHECK_EQ(count_of(RDZV_REPLY_SUBMITTED), 1);
    return find(RDZV_REPLY_SUBMITTED)->job_id;
}

static void end(uint64_t id, int32_t exit_code)
{
    step_rank_report(1, (struct rank_report){.job_id = id, .phase = SHIM_READY});
    step_rank_report(1, (struct rank_report){.job_id = id, .phase = SHIM_RUNNING});
    step_rank_report(
        1, (struct rank_report){.job_id = id, .phase = SHIM_ENDED, .exit_code = exit_code});
}

static void cancel(uint64_t id)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL,
                      .cancel = {.job = "1", .signal = SIGTERM, .grace_us = -1}};

    step((struct rdzv_event){.type = RDZV_EVENT_CANCEL, .client = 9, .job_id = id, .msg = &msg});
}

/* Events of the last step with that text. */
static uint32_t events_with(const char *text)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < actions.count; i++)
        count +=
            actions.items[i].type == RDZV_LOG_EVENT && strstr(actions.items[i].text, text) != NULL;
    return count;
}

TEST(a_job_waits_for_the_success_of_another)
{
    uint64_t first, second;

    begin(4, 0);
    first = submit((struct wanted){0});
    second = submit((struct wanted){.after = first});
    CHECK_EQ(state_of(second), JOB_QUEUED);
    CHECK_STR(record_of(second)->reason, "waits for job 1 (job) to succeed (--after)");
    CHECK_EQ(record_of(second)->after_job, first);
    /* the waiting job does not hold up others */
    CHECK_EQ(state_of(submit((struct wanted){0})), JOB_STARTING);
    end(first, 0);
    CHECK_EQ(state_of(second), JOB_STARTING);
    CHECK_EQ(record_of(second)->after_job, 0);
}

TEST(a_job_that_waits_for_one_that_fails_ends_and_so_do_those_behind_it)
{
    uint64_t first, second, third, any;

    begin(4, 0);
    first = submit((struct wanted){0});
    second = submit((struct wanted){.after = first});
    third = submit((struct wanted){.after = second, .priority = 10}); /* before it in the queue */
    any = submit((struct wanted){.after = second, .any = true});
    CHECK_STR(record_of(any)->reason, "waits for job 2 (job) to end (--after)");
    end(first, 1);
    CHECK_EQ(state_of(second), JOB_CANCELLED);
    CHECK_STR(record_of(second)->reason,
              "job 1 has failed, and this one was to start after its success (--after 1:ok)");
    CHECK_EQ(events_with("is cancelled, generation 0: job 1 has failed, and this one was to "
                         "start after its success (--after 1:ok)"),
             1);
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(state_of(third), JOB_CANCELLED);
    CHECK_STR(record_of(third)->reason,
              "job 2 was cancelled, and this one was to start after its success (--after 2:ok)");
    CHECK_EQ(state_of(any), JOB_STARTING);
}

TEST(a_cancel_of_the_first_cancels_the_second)
{
    uint64_t first, second;

    begin(1, 0);
    first = submit((struct wanted){0});
    second = submit((struct wanted){.after = first});
    cancel(first);
    CHECK_EQ(state_of(second), JOB_QUEUED); /* the first still has its grace */
    step_rank_report(1, (struct rank_report){.job_id = first, .phase = SHIM_ENDED});
    CHECK_EQ(state_of(second), JOB_CANCELLED);
}

TEST(what_has_ended_before_counts_at_once)
{
    uint64_t id;

    begin(4, 0);
    end(submit((struct wanted){0}), 0);
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK(record_of(1) == NULL);
    CHECK_EQ(state_of(submit((struct wanted){.after = 1})), JOB_STARTING);
    id = submit((struct wanted){.after = 1, .known = {.failed_id = 1, .failed_state = JOB_FAILED}});
    CHECK_EQ(state_of(id), JOB_CANCELLED);
    CHECK_EQ(count_of(RDZV_JOB_ENDED), 1);
}

TEST(the_wait_goes_on_in_a_restarted_server)
{
    struct rdzv_record record = {.job_id = 5,
                                 .name = "stored",
                                 .user = "ann",
                                 .nodes = 1,
                                 .nproc_per_node = 1,
                                 .failed_rank = -1,
                                 .after_job = 2,
                                 .after_last = 4};
    struct rdzv_after failed = {.failed_id = 3, .failed_state = JOB_CANCELLED};

    begin_with(8, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 6});
    CHECK_EQ(record_of(5)->after_job, 0); /* all have succeeded: it waits for nothing more */

    begin_with(8, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record, .after = failed});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 6});
    CHECK_EQ(record_of(5)->state, JOB_CANCELLED);
    CHECK_STR(record_of(5)->reason,
              "job 3 was cancelled, and this one was to start after its success (--after 2:ok)");

    begin_with(8, 4);
    failed.failed_state = JOB_QUEUED;
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record, .after = failed});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 6});
    CHECK_STR(record_of(5)->reason, "job 3 is not known any more, and this one was to start after "
                                    "its success (--after 2:ok)");
}

TEST(a_job_waits_for_all_of_several)
{
    uint64_t first, second, third, fourth;

    begin(4, 0);
    first = submit((struct wanted){0});
    second = submit((struct wanted){0});
    third = submit((struct wanted){.after = first, .more = {second, second, .any = true}});
    fourth = submit((struct wanted){.after = second, .any = true, .more = {third, third, false}});
    CHECK_STR(record_of(third)->reason,
              "waits for job 1 (job) to succeed, and for 1 more (--after)");
    CHECK_STR(record_of(third)->tail, "2-2:any");
    end(first, 0);
    CHECK_EQ(state_of(third), JOB_QUEUED); /* the other one runs */
    CHECK_STR(record_of(third)->reason, "waits for job 2 (job) to end (--after)");
    end(second, 1);
    CHECK_EQ(state_of(third), JOB_STARTING);
    CHECK_STR(record_of(third)->tail, "");
    CHECK_EQ(state_of(fourth), JOB_QUEUED);
    end(third, 1); /* a job that is not the first in the list */
    CHECK_EQ(state_of(fourth), JOB_CANCELLED);
    CHECK_STR(record_of(fourth)->reason,
              "job 3 has failed, and this one was to start after its success (--after 3:ok)");
}

TEST(what_a_job_waits_for_is_marked)
{
    struct rdzv_ids ids[] = {
        {.first = 1, .last = 1}, {.first = 2, .last = 2}, {.first = 3, .last = 9}};

    begin(1, 0);
    for (uint32_t i = 0; i < 4; i++)
        (void)submit((struct wanted){0});
    rdzv_mark_awaited(core, ids, 3);
    CHECK(!ids[0].is_awaited && !ids[1].is_awaited && !ids[2].is_awaited);
    (void)submit((struct wanted){
        .after = 1, .any = true, .more = {.first = 4, .last = 4}}); /* 5 needs the success of 4 */
    (void)submit((struct wanted){.after = 1, .last = 1});           /* and 6 that of 1 */
    rdzv_mark_awaited(core, ids, 3);
    CHECK(ids[0].is_awaited && !ids[1].is_awaited && ids[2].is_awaited);
    cancel(6);
    ids[0].is_awaited = ids[2].is_awaited = false;
    rdzv_mark_awaited(core, ids, 3);
    CHECK(!ids[0].is_awaited && ids[2].is_awaited);
}

TEST(one_of_several_that_fails_ends_the_wait_for_all)
{
    uint64_t first, second, third;

    begin(4, 0);
    first = submit((struct wanted){0});
    second = submit((struct wanted){0});
    third = submit((struct wanted){.after = first, .more = {second, second, false}});
    end(second, 1);
    CHECK_EQ(state_of(third), JOB_CANCELLED);
    CHECK_EQ(state_of(first), JOB_STARTING);
}

TEST(a_restarted_server_waits_for_all_of_several)
{
    struct rdzv_record record = {.job_id = 5,
                                 .name = "stored",
                                 .user = "ann",
                                 .nodes = 1,
                                 .nproc_per_node = 1,
                                 .failed_rank = -1,
                                 .after_job = 2,
                                 .after_last = 2,
                                 .tail = "3-3:any 4-4:ok"};
    struct rdzv_record other = {.job_id = 4,
                                .name = "other",
                                .user = "ann",
                                .nodes = 1,
                                .nproc_per_node = 1,
                                .failed_rank = -1};

    begin_with(8, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &other});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 6});
    CHECK_STR(record_of(5)->reason, "waits for job 4 (other) to succeed (--after)");
    cancel(4);
    CHECK_STR(record_of(5)->reason,
              "job 4 was cancelled, and this one was to start after its success (--after 4:ok)");
}

TEST(a_damaged_list_of_jobs_is_refused)
{
    static const char *const bad[] = {
        "3-3",     "x",      "3-3:ok ",      "3-3:ok  4-4:ok",
        "4-3:ok",  "0-3:ok", "3-5:any",      "3-3:never",
        "3-3:ok,", "-3:ok",  "3-3:ok4-4:ok", "3-99999999999999999999:ok"};
    char many[128] = "3-3:ok";

    for (size_t i = 0; i <= sizeof bad / sizeof bad[0]; i++) {
        struct rdzv_record record = {.job_id = 5,
                                     .name = "stored",
                                     .nodes = 1,
                                     .nproc_per_node = 1,
                                     .failed_rank = -1,
                                     .after_job = 2,
                                     .after_last = 2};

        for (size_t k = 1, at = 6; k < AFTER_MAX; k++, at += 7)
            (void)snprintf(many + at, sizeof many - at, " 3-3:ok");
        (void)snprintf(record.tail, sizeof record.tail, "%s",
                       i < sizeof bad / sizeof bad[0] ? bad[i] : many);
        many[6] = '\0';
        begin_with(8, 4);
        step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
        CHECK_STR(record_of(5)->reason,
                  "it could not be restored: it waits for jobs that are not before it");
    }
}

TEST(the_longest_list_of_jobs_is_stored)
{
    struct rdzv_after after = {.count = AFTER_MAX}, read;
    struct rdzv_record record = {0};

    for (uint32_t i = 0; i < AFTER_MAX; i++)
        after.items[i] = (struct rdzv_after_item){JOB_ID_MAX - i, JOB_ID_MAX, true};
    after_list_write(&after, &record);
    CHECK(after_list_read(&record, &read));
    CHECK_EQ(read.count, AFTER_MAX);
    for (uint32_t i = 0; i < AFTER_MAX; i++)
        CHECK(read.items[i].first == JOB_ID_MAX - i && read.items[i].last == JOB_ID_MAX &&
              read.items[i].any);
    after.count = 1;
    after_list_write(&after, &record);
    CHECK_STR(record.tail, "");
}

TEST(a_record_that_waits_for_a_later_job_is_refused)
{
    struct rdzv_record record = {.job_id = 5,
                                 .name = "stored",
                                 .nodes = 1,
                                 .nproc_per_node = 1,
                                 .failed_rank = -1,
                                 .after_job = 5,
                                 .after_last = 5};

    begin_with(8, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    CHECK_STR(record_of(5)->reason,
              "it could not be restored: it waits for jobs that are not before it");
}

TEST(an_array_is_so_many_jobs_and_runs_so_many_at_a_time)
{
    uint64_t array, after;

    begin(8, 0);
    CHECK_EQ(submit((struct wanted){0}), 1);
    array = submit_array("1,4-8:2%2"); /* 1 4 6 8 */
    CHECK_EQ(array, 2);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_EQ(record_of(array + i)->array_job, array);
        CHECK_EQ(record_of(array + i)->array_count, 4);
        CHECK_EQ(record_of(array + i)->array_max, 8);
        CHECK_EQ(state_of(array + i), i < 2 ? JOB_STARTING : JOB_QUEUED);
    }
    CHECK_EQ(record_of(array)->array_index, 1);
    CHECK_EQ(record_of(array + 3)->array_index, 8);
    CHECK_STR(record_of(array)->request_id, "0");
    CHECK_STR(record_of(array + 1)->request_id, ""); /* it belongs to the first */
    CHECK_STR(record_of(array + 3)->reason,
              "waits for other jobs of its array to end: at most 2 run at a time (--array)");
    CHECK_EQ(state_of(submit((struct wanted){0})), JOB_STARTING); /* they do not hold up others */
    after = submit((struct wanted){.after = array, .last = array + 3});
    CHECK_STR(record_of(after)->reason,
              "waits for the 4 jobs of array 2 (sweep) to succeed (--after)");
    end(array + 1, 0);
    CHECK_EQ(state_of(array + 2), JOB_STARTING);
    CHECK_EQ(state_of(array + 3), JOB_QUEUED);
    end(array, 0);
    CHECK_EQ(state_of(array + 3), JOB_STARTING);
    end(array + 3, 0);
    CHECK_EQ(state_of(after), JOB_QUEUED);
    end(array + 2, 0);
    CHECK_EQ(state_of(after), JOB_STARTING);
}

TEST(a_job_of_an_array_that_fails_ends_what_waits_for_all_of_it)
{
    uint64_t array, after;

    begin(8, 0);
    array = submit_array("0-2");
    after = submit((struct wanted){.after = array, .last = array + 2});
    end(array + 1, 3);
    CHECK_EQ(state_of(after), JOB_CANCELLED); /* although others still run */
}

TEST(an_array_is_taken_whole_or_not_at_all)
{
    begin(1, 4);
    CHECK_EQ(submit_array("0-4"), 0);
    CHECK_STR(find(RDZV_REPLY_ERROR)->text,
              "its 5 jobs are more than may wait for a user at a time: 4 (--max-queued-per-user of "
              "the server): submit the array in parts");
    CHECK_EQ(find(RDZV_REPLY_ERROR)->status, STATUS_REFUSED);
    CHECK_EQ(rdzv_job_count(core), 0);
    CHECK(actions.timer_at_us != UINT64_MAX); /* the core still watches its nodes */
    CHECK_EQ(submit_array("0-2"), 1);         /* one runs, two wait */
    CHECK_EQ(submit_array("0-2"), 0);
    CHECK_STR(find(RDZV_REPLY_ERROR)->text,
              "2 jobs of ann wait already, a user may have 4 (--max-queued-per-user of the "
              "server): submit again when some have started");
    CHECK_EQ(rdzv_job_count(core), 3);
    CHECK_EQ(submit_array("7,9"), 4);
}

TEST_MAIN
