/* The shim's core: traces of events and actions. */
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"
#include "tests/lib/test.h"
#include "tests/unit/launcherd/shim_tools.h"

static const char *join(uint64_t now_us, uint32_t local, uint32_t generation, uint32_t rank,
                        const char *blob)
{
    struct msg msg = {.type = MSG_TYPE_WORKER_JOIN};
    msg.worker_join = (struct msg_worker_join){
        .rank = rank,
        .generation = generation,
        .blob = {.items = (const uint8_t *)blob, .count = (uint32_t)strlen(blob)}};
    return step(now_us,
                (struct shim_event){.type = SHIM_EVENT_WORKER_MSG, .local = local, .msg = &msg});
}

static const char *world(uint64_t now_us, const char *blob)
{
    struct msg msg = {.type = MSG_TYPE_WORLD};
    msg.world = (struct msg_world){
        .job_id = 7,
        .generation = 2,
        .blob = {.items = (const uint8_t *)blob, .count = (uint32_t)strlen(blob)}};
    return message(now_us, &msg);
}

TEST(two_workers_succeed)
{
    ready(2);
    CHECK_EQ(report(3).master_port, 5000);
    CHECK_STR(go(4, 2), "spawn(10.0.0.1:4711)");
    CHECK_STR(spawned(5, 0), "report(ready)");
    CHECK_STR(spawned(6, 1), "report(running)");
    CHECK_STR(exited(7, 0, 0, 0), "report(running)");
    CHECK_STR(exited(8, 1, 0, 0), "check report(stopping)");
    CHECK_STR(event(9, SHIM_EVENT_TREE_EMPTY), "report(ended)");
    struct msg_shim_report last = report(9);
    CHECK_EQ(last.failed_rank, -1);
    CHECK_STR(last.cause, "");
    CHECK_EQ(last.ranks.count, 2);
    CHECK_EQ(last.ranks.items[1].state, RANK_EXITED);
    CHECK_EQ(last.ranks.items[1].pid, 101);
    CHECK_STR(ack(10, last.revision), "");
    CHECK_STR(forget(11), "exit");
    CHECK_STR(forget(12), "");
}

TEST(other_node_ranks_reserve_no_port)
{
    begin(4, 2);
    CHECK_STR(event(1, SHIM_EVENT_START), "");
    CHECK_EQ(shim.phase, SHIM_READY);
    CHECK_STR(event(2, SHIM_EVENT_LAUNCHER_OPEN), "report(ready)");
    CHECK_EQ(report(2).ranks.items[0].rank, 4);
}

TEST(no_free_port_ends_the_shim)
{
    begin(0, 1);
    event(1, SHIM_EVENT_START);
    step(2, (struct shim_event){.type = SHIM_EVENT_PORT, .text = "no port: full"});
    CHECK_EQ(shim.phase, SHIM_ENDED);
    CHECK_STR(report(2).cause, "no port: full");
}

TEST(a_second_go_and_one_of_another_generation_are_ignored)
{
    ready(1);
    CHECK_STR(go(4, 1), "");
    CHECK_STR(go(4, 3), "");
    CHECK_STR(go(4, 2), "spawn(10.0.0.1:4711)");
    CHECK_STR(go(5, 2), "");
    spawned(6, 0);
    CHECK_STR(go(7, 2), "");
}

TEST(first_failure_stops_the_others)
{
    running(3);
    CHECK_STR(exited(10 * SECOND_US, 1, 3, 0), "signal(15) report(stopping)");
    CHECK_STR(exited(10 * SECOND_US + 1, 0, 9, 0), "report(stopping)");
    CHECK_STR(exited(10 * SECOND_US + 2, 2, 0, 9), "left(15) check report(stopping)");
    CHECK_STR(event(10 * SECOND_US + 3, SHIM_EVENT_TREE_EMPTY), "report(ended)");
    struct msg_shim_report last = report(12 * SECOND_US);
    CHECK_EQ(last.failed_rank, 1);
    CHECK_EQ(last.failed_age_us, 2 * SECOND_US);
    CHECK_STR(last.cause, "rank 1 exited with code 3");
    CHECK_EQ(last.ranks.items[0].state, RANK_STOPPED);
    CHECK_EQ(last.ranks.items[1].state, RANK_EXITED);
    CHECK_EQ(last.ranks.items[1].exit_code, 3);
    CHECK_EQ(last.ranks.items[2].signal, 9);
}

TEST(the_cause_names_the_signal)
{
    running(1);
    exited(6, 0, 0, 9);
    CHECK_STR(report(6).cause, "rank 0 was killed by signal 9 (SIGKILL)");
    running(1);
    exited(6, 0, 0, 40);
    CHECK_STR(report(6).cause, "rank 0 was killed by signal 40");
    running(1);
    step(6, (struct shim_event){
                .type = SHIM_EVENT_EXITED, .local = 0, .signal = 11, .text = "core dumped"});
    CHECK_STR(report(6).cause, "rank 0 was killed by signal 11 (SIGSEGV): core dumped");
}

static const char *dumping(uint64_t now_us, uint32_t local, uint32_t signal)
{
    return step(now_us,
                (struct shim_event){.type = SHIM_EVENT_DUMPING, .local = local, .signal = signal});
}

/* The other workers are stopped; the shim ends when the core file is written. */
TEST(a_core_file_in_progress_is_a_failure)
{
    running(2);
    CHECK_STR(dumping(100, 1, 11), "signal(15) report(stopping)");
    CHECK_STR(shim.cause, "rank 1 was killed by signal 11 (SIGSEGV): it is writing a core file");
    CHECK_EQ(shim.failed_rank, 1);
    CHECK_EQ(shim.ranks[1].state, RANK_EXITED);
    CHECK_EQ(shim.ranks[1].signal, 11);
    CHECK_STR(exited(300, 0, 0, 15), "kill report(stopping)"); /* leaves time for the core file */
    exited(20 * SECOND_US, 1, 0, 9);
    CHECK_STR(event(20 * SECOND_US + 1, SHIM_EVENT_TREE_EMPTY), "report(ended)");
    CHECK_EQ(shim.ranks[1].signal, 11);
    CHECK_EQ(shim.failed_at_us, 100);
}

TEST(core_files_of_an_unknown_signal_and_after_a_stop)
{
    running(1);
    dumping(100, 0, 0);
    CHECK_EQ(shim.ranks[0].exit_code, 128);
    running(2);
    stop(100, 15, SECOND_US);
    CHECK_STR(dumping(200, 1, 6), "");
    exited(300, 1, 0, 6);
    CHECK_EQ(shim.ranks[1].state, RANK_STOPPED);
}

TEST(a_worker_that_dies_before_the_others_are_spawned)
{
    ready(2);
    go(4, 2);
    spawned(5, 0);
    CHECK_STR(exited(6, 0, 1, 0), "signal(15) report(stopping)");
    CHECK_STR(event(7, SHIM_EVENT_TREE_EMPTY), ""); /* rank 1 is not spawned yet */
    CHECK_STR(spawned(8, 1), "kill report(stopping)");
    exited(9, 1, 0, 9);
    CHECK_EQ(shim.phase, SHIM_STOPPING);
    CHECK_STR(event(10, SHIM_EVENT_TREE_EMPTY), "report(ended)");
    CHECK_EQ(report(10).failed_rank, 0);
}

TEST(commands_that_cannot_run)
{
    ready(2);
    go(4, 2);
    CHECK_STR(step(5, (struct shim_event){.type = SHIM_EVENT_SPAWN_FAILED,
                                          .local = 0,
                                          .code = 127,
                                          .text = "cannot run 'foo': No such file or directory"}),
              "kill report(stopping)");
    step(5, (struct shim_event){
                .type = SHIM_EVENT_SPAWN_FAILED, .local = 1, .code = 127, .text = "other"});
    CHECK_STR(event(6, SHIM_EVENT_TREE_EMPTY), "report(ended)");
    CHECK_EQ(report(6).failed_errno_exit, 127);
    CHECK_EQ(report(6).failed_class, FAILURE_PROGRAM);
    CHECK_STR(report(6).cause, "rank 0: cannot run 'foo': No such file or directory");
}

/* A report with any other text would be refused by the encoder, and the job would never end. */
TEST(the_cause_can_always_be_sent)
{
    char text[400], cause[REASON_BYTES_MAX];
    (void)snprintf(text, sizeof text, "cannot run a\tb\n\xc3 ");
    for (size_t i = strlen(text); i + 2 < sizeof text; i += 2)
        memcpy(text + i, "\xc3\xa9", 3); /* cut within a character, wherever the limit is */
    ready(1);
    go(4, 2);
    step(5, (struct shim_event){
                .type = SHIM_EVENT_SPAWN_FAILED, .local = 0, .code = 127, .text = text});
    utf8_printable(report(5).cause, strlen(report(5).cause), cause, sizeof cause);
    CHECK_STR(report(5).cause, cause);
    CHECK(strncmp(cause, "rank 0: cannot run a?b?? \xc3\xa9", 27) == 0);
    CHECK_STR(cause + strlen(cause) - 3, "...");
}

TEST(stop_before_go_ends_at_once)
{
    ready(1);
    CHECK_STR(stop(5, 15, SECOND_US), "report(ended)");
    CHECK_EQ(report(5).ranks.items[0].state, RANK_WAITING);
    CHECK_STR(stop(6, 15, SECOND_US), "");
    CHECK_STR(go(7, 2), "");
}

TEST(stop_signals_waits_and_kills)
{
    running(2);
    uint64_t at_us = 10 * SECOND_US;
    CHECK_STR(stop(at_us, 15, 2 * SECOND_US), "signal(15) report(stopping)");
    CHECK_EQ(actions.timer_at_us, at_us + SECOND_US); /* when the report is sent again */
    CHECK_STR(stop(at_us + 1, 15, 2 * SECOND_US), "");
    CHECK_STR(exited(at_us + 2, 0, 0, 15), "report(stopping)");
    ack(at_us + 3, shim.revision);
    CHECK_EQ(actions.timer_at_us, at_us + SECOND_US / 2 * 3);
    CHECK_STR(event(at_us + SECOND_US / 2 * 3, SHIM_EVENT_TICK), "late(15)");
    CHECK_EQ(actions.timer_at_us, at_us + 2 * SECOND_US);
    CHECK_STR(event(at_us + 2 * SECOND_US - 1, SHIM_EVENT_TICK), "");
    CHECK_STR(event(at_us + 2 * SECOND_US, SHIM_EVENT_TICK), "kill(told)");
    CHECK_STR(exited(at_us + 2 * SECOND_US + 1, 1, 0, 9), "report(stopping)");
    CHECK_STR(event(at_us + 2 * SECOND_US + 2, SHIM_EVENT_TREE_EMPTY), "report(ended)");
    CHECK_EQ(report(at_us).failed_rank, -1);
    CHECK_EQ(report(at_us).ranks.items[0].state, RANK_STOPPED);
}

TEST(a_shorter_grace_counts_and_zero_kills)
{
    running(1);
    uint64_t at_us = 10 * SECOND_US;
    stop(at_us, 15, 30 * SECOND_US);
    CHECK_STR(stop(at_us + 1, 2, SECOND_US), "signal(2)");
    CHECK_EQ(shim.kill_at_us, at_us + 1 + SECOND_US);
    CHECK_STR(stop(at_us + 2, 15, 0), "kill");
    CHECK_STR(stop(at_us + 3, 15, 0), "");
}

TEST(children_of_workers_get_the_grace_too)
{
    running(1);
    uint64_t at_us = 10 * SECOND_US;
    stop(at_us, 15, 2 * SECOND_US);
    CHECK_STR(exited(at_us + 1, 0, 0, 15), "left(15) check report(stopping)");
    ack(at_us + 2, shim.revision);
    CHECK_STR(event(actions.timer_at_us, SHIM_EVENT_TICK), "check");
    CHECK_STR(stop(at_us + 30000, 2, 2 * SECOND_US), "left(2)");
    CHECK_STR(event(at_us + 2 * SECOND_US, SHIM_EVENT_TICK), "kill(told)");
    CHECK_STR(event(at_us + 2 * SECOND_US + 1, SHIM_EVENT_TREE_EMPTY), "report(ended)");
}

TEST(lease_ends_the_workers)
{
    struct msg lease = {.type = MSG_TYPE_LEASE};
    running(1);
    lease.lease.until_us = 100u * SECOND_US;
    CHECK_STR(message(SECOND_US, &lease), "");
    lease.lease.until_us = 50u * SECOND_US; /* an older one */
    CHECK_STR(message(SECOND_US, &lease), "");
    event(2 * SECOND_US, SHIM_EVENT_LAUNCHER_CLOSED);
    CHECK_EQ(actions.timer_at_us, 100u * SECOND_US);
    CHECK_STR(event(100u * SECOND_US - 1, SHIM_EVENT_TICK), "");
    CHECK_STR(event(100u * SECOND_US, SHIM_EVENT_TICK), "kill");
    exited(100u * SECOND_US + 1, 0, 0, 9);
    event(100u * SECOND_US + 2, SHIM_EVENT_TREE_EMPTY);
    CHECK_EQ(shim.phase, SHIM_ENDED);
    CHECK_STR(report(0).cause, "cut off from the server for longer than the lease (60 s)");
    CHECK_EQ(report(0).ranks.items[0].state, RANK_STOPPED);
    CHECK_STR(event(101u * SECOND_US, SHIM_EVENT_LAUNCHER_OPEN), "report(ended)");
}

TEST(lease_ends_waiting_for_go_and_the_grace)
{
    ready(1);
    CHECK_STR(event(LEASE_US, SHIM_EVENT_TICK), "hello report(ended)");
    running(1);
    stop(SECOND_US, 15, 3600ull * SECOND_US);
    CHECK_STR(event(LEASE_US, SHIM_EVENT_TICK), "kill hello report(stopping)");
}

TEST(without_a_lease_it_counts_from_the_first_step)
{
    struct shim_options options = {
        .job_id = 7, .generation = 2, .local_count = 1, .world = 1, .lease_us = LEASE_US};
    shim_init(&shim, &options);
    event(5, SHIM_EVENT_START);
    CHECK_EQ(shim.lease_until_us, 5 + LEASE_US);
}

TEST(a_warning_comes_once_and_only_while_the_ranks_run)
{
    running(1);
    shim.options.warn_after_us = 3 * SECOND_US;
    shim.options.warn_signal = 10;
    ack(5, shim.revision);
    CHECK_EQ(actions.timer_at_us, 5 + 3 * SECOND_US);
    CHECK_STR(event(4 + 3 * SECOND_US, SHIM_EVENT_TICK), "");
    CHECK_STR(event(5 + 3 * SECOND_US, SHIM_EVENT_TICK), "warn(10)");
    CHECK_EQ(actions.timer_at_us, LEASE_US);
    CHECK_STR(event(9 * SECOND_US, SHIM_EVENT_TICK), "");

    running(1);
    shim.options.warn_after_us = 3 * SECOND_US;
    shim.options.warn_signal = 10;
    stop(SECOND_US, 15, 60 * SECOND_US);
    ack(SECOND_US, shim.revision);
    CHECK_STR(event(4 * SECOND_US, SHIM_EVENT_TICK), ""); /* it is being stopped */
}

TEST(reports_until_acked)
{
    running(1);
    uint64_t sent_us = 5;
    CHECK_EQ(actions.timer_at_us, sent_us + SECOND_US);
    CHECK_STR(event(sent_us + SECOND_US, SHIM_EVENT_TICK), "report(running)");
    CHECK_STR(ack(sent_us + SECOND_US + 1, shim.revision - 1), "");
    CHECK_STR(event(sent_us + 2 * SECOND_US, SHIM_EVENT_TICK), "report(running)");
    CHECK_STR(ack(sent_us + 2 * SECOND_US + 1, shim.revision + 5), ""); /* of a revision that was
                                                                         * never sent */
    CHECK_STR(event(sent_us + 3 * SECOND_US, SHIM_EVENT_TICK), "report(running)");
    ack(sent_us + 3 * SECOND_US + 1, shim.revision);
    CHECK_EQ(actions.timer_at_us, LEASE_US);
    CHECK_STR(event(sent_us + 9 * SECOND_US, SHIM_EVENT_TICK), "");
}

TEST(a_new_server_gets_the_report_again)
{
    struct msg request = {.type = MSG_TYPE_REPORT_REQUEST, .report_request.all = true};
    running(1);
    ack(6, shim.revision);
    CHECK_STR(message(7, &request), "report(running)");
    CHECK_STR(event(7 + SECOND_US, SHIM_EVENT_TICK), "report(running)");
}

/* Its phase and what it promised: a stopped worker tells neither again. */
TEST(a_new_server_gets_what_each_worker_told_last)
{
    struct msg request = {.type = MSG_TYPE_REPORT_REQUEST, .report_request.all = true};
    struct msg msg = {.type = MSG_TYPE_PROGRESS,
                      .progress = {.job_id = 7,
                                   .generation = 2,
                                   .rank = 1,
                                   .step = 9,
                                   .phase = PROGRESS_VALIDATING,
                                   .again_us = 5 * SECOND_US}};
    struct shim_event from = {.type = SHIM_EVENT_WORKER_MSG, .local = 1, .msg = &msg};

    running(2);
    ack(6, shim.revision);
    CHECK_STR(step(10, from), "progress");
    CHECK_STR(message(11 + SECOND_US, &request), "progress report(running)");
    CHECK_EQ(actions.items[0].progress->step, 9);
    CHECK_EQ(actions.items[0].progress->phase, PROGRESS_VALIDATING);
    CHECK_EQ(actions.items[0].progress->again_us, 5 * SECOND_US);
    CHECK_STR(message(12 + SECOND_US, &request), "report(running)"); /* once a second */
    CHECK_STR(event(11 + 2 * SECOND_US, SHIM_EVENT_TICK), "progress");
}

TEST(a_question_is_answered_without_a_report)
{
    struct msg request = {.type = MSG_TYPE_REPORT_REQUEST};
    running(1);
    ack(6, shim.revision);
    CHECK_STR(message(7, &request), "hello");
    CHECK_STR(event(7 + SECOND_US, SHIM_EVENT_TICK), "");
}

/* The end is reported when it is stored, or when that takes too long. */
TEST(an_end_that_cannot_be_stored_is_reported)
{
    struct shim_event late = {.type = SHIM_EVENT_END_KEPT, .text = "the disk does not answer"};
    struct msg request = {.type = MSG_TYPE_REPORT_REQUEST, .report_request.all = true};

    running(1);
    disk_hangs = true;
    (void)exited(10, 0, 0, 0);
    CHECK_STR(event(11, SHIM_EVENT_TREE_EMPTY), "keep-end");
    CHECK_STR(message(12, &request), "");
    CHECK_STR(event(12 + SECOND_US, SHIM_EVENT_TICK), "");
    CHECK(actions.timer_at_us > 12 + SECOND_US); /* it does not spin */
    CHECK_STR(step(13 + SECOND_US, late), "report(ended)");
    CHECK_STR(report(13).notice, "the end of job 7 is not stored: the disk does not answer");
    CHECK_STR(report(13).cause, "");
    ack(14 + SECOND_US, shim.revision);
    CHECK_STR(event(15 + SECOND_US, SHIM_EVENT_END_KEPT), "report(ended)"); /* it answers again */
    CHECK_STR(report(15).notice, "");
    CHECK_STR(forget(16 + SECOND_US), "exit");
    disk_hangs = false;
}

/* A disk that takes no more output is told with the end, unless that is not stored either. */
TEST(output_that_is_not_in_the_logs_is_told)
{
    const struct shim_event empty = {.type = SHIM_EVENT_TREE_EMPTY, .text = "5 bytes are gone"};
    const struct shim_event late = {.type = SHIM_EVENT_END_KEPT, .text = "the disk hangs"};

    running(1);
    disk_hangs = true;
    (void)exited(10, 0, 0, 0);
    CHECK_STR(step(11, empty), "keep-end");
    CHECK_STR(step(12, late), "report(ended)");
    CHECK_STR(report(12).notice, "the end of job 7 is not stored: the disk hangs");
    CHECK_STR(event(13, SHIM_EVENT_END_KEPT), "report(ended)");
    CHECK_STR(report(13).notice, "output of job 7 is lost: 5 bytes are gone");
    CHECK_STR(report(13).cause, ""); /* the job has not failed */
    disk_hangs = false;
}

TEST(joins_and_world)
{
    running(3);
    CHECK_STR(join(6, 0, 2, 0, "id"), "report(running)");
    CHECK_EQ(report(6).blob.count, 2);
    CHECK_BYTES(report(6).blob.items, "id", 2);
    CHECK_STR(join(7, 1, 1, 1, ""), "");        /* an old generation */
    CHECK_STR(join(7, 1, 2, 2, ""), "");        /* not its rank */
    CHECK_STR(join(7, 0, 2, 0, "changed"), ""); /* again */
    CHECK_BYTES(report(7).blob.items, "id", 2);
    CHECK_STR(join(8, 1, 2, 1, "nobody's"), "report(running)");
    CHECK_EQ(report(8).blob.count, 2);
    CHECK_STR(world(9, "everybody"), "world(0) world(1) report(running)");
    CHECK_EQ(shim.world_byte_count, 9);
    CHECK_BYTES(shim.world_bytes, "everybody", 9);
    CHECK_STR(world(10, "again"), "");
    CHECK_STR(join(11, 2, 2, 2, ""), "world(2) report(running)");
    CHECK_EQ(report(11).has_world, true);
}

TEST(progress_of_this_rank_and_generation_only)
{
    struct msg msg = {.type = MSG_TYPE_PROGRESS};
    struct shim_event from = {.type = SHIM_EVENT_WORKER_MSG, .local = 1, .msg = &msg};
    running(2);
    msg.progress.job_id = 7;
    msg.progress.generation = 2;
    msg.progress.rank = 1;
    CHECK_STR(step(6, from), "progress");
    msg.progress.rank = 0;
    CHECK_STR(step(6, from), "");
    msg.progress.rank = 1;
    msg.progress.generation = 1;
    CHECK_STR(step(6, from), "");
    msg.progress.generation = 2;
    event(7, SHIM_EVENT_LAUNCHER_CLOSED);
    CHECK_STR(step(8, from), "");
}

TEST(progress_goes_out_once_a_second)
{
    const uint64_t second_us = 1000000;
    struct msg msg = {.type = MSG_TYPE_PROGRESS,
                      .progress = {.job_id = 7, .generation = 2, .step = 1}};
    struct shim_event from = {.type = SHIM_EVENT_WORKER_MSG, .msg = &msg};

    running(2);
    ack(6, shim.revision);
    CHECK_STR(step(10, from), "progress");
    for (uint32_t i = 0; i < 1000; i++) {
        msg.progress.step++;
        CHECK_STR(step(11 + i, from), "");
    }
    CHECK_EQ(actions.timer_at_us, 10 + second_us);
    msg.progress.step = 5; /* back */
    CHECK_STR(step(2000, from), "");
    CHECK_STR(event(10 + second_us, SHIM_EVENT_TICK), "progress");
    CHECK_EQ(actions.items[0].progress->step, 1001);
    CHECK_STR(event(11 + 2 * second_us, SHIM_EVENT_TICK), ""); /* nothing new */
    msg.progress.step = 1002;
    CHECK_STR(step(12 + 2 * second_us, from), "progress");
    msg.progress.step = 1003;
    CHECK_STR(step(13 + 2 * second_us, from), "");
    event(14 + 2 * second_us, SHIM_EVENT_LAUNCHER_CLOSED);
    CHECK_STR(event(20 + 3 * second_us, SHIM_EVENT_TICK), "");
    CHECK(strstr(event(21 + 3 * second_us, SHIM_EVENT_LAUNCHER_OPEN), "progress") != NULL);
    msg.progress.step = 1004;
    CHECK_STR(step(22 + 3 * second_us, from), "");
    /* the last word of a worker does not wait */
    CHECK(
        strstr(step(23 + 3 * second_us, (struct shim_event){.type = SHIM_EVENT_EXITED, .text = ""}),
               "progress") != NULL);
}

TEST(launcherd_disconnects_and_connects)
{
    running(1);
    ack(6, shim.revision);
    CHECK_STR(event(7, SHIM_EVENT_LAUNCHER_CLOSED), "");
    CHECK_STR(exited(8, 0, 5, 0), "left(15) check");
    CHECK_STR(event(9, SHIM_EVENT_TREE_EMPTY), "");
    CHECK_STR(event(10, SHIM_EVENT_LAUNCHER_OPEN), "report(ended)");
}

TEST(forget_before_the_end_kills_first)
{
    running(1);
    CHECK_STR(forget(6), "kill report(stopping)");
    exited(7, 0, 0, 9);
    CHECK_STR(event(8, SHIM_EVENT_TREE_EMPTY), "report(ended) exit");
}

/* Whoever comes later reads it from the disk. */
TEST(an_end_on_the_disk_is_kept_for_a_minute_without_launcherd)
{
    running(1);
    exited(6, 0, 0, 0);
    event(7, SHIM_EVENT_TREE_EMPTY);
    CHECK_STR(event(LEASE_US + 3000ull * SECOND_US, SHIM_EVENT_TICK), "report(ended)");
    CHECK_STR(event(LEASE_US + 3001ull * SECOND_US, SHIM_EVENT_LAUNCHER_CLOSED), "");
    CHECK_EQ(actions.timer_at_us, LEASE_US + 3061ull * SECOND_US);
    event(LEASE_US + 3002ull * SECOND_US, SHIM_EVENT_LAUNCHER_OPEN); /* it is back */
    CHECK_STR(event(LEASE_US + 3061ull * SECOND_US, SHIM_EVENT_TICK), "report(ended)");
    event(LEASE_US + 3062ull * SECOND_US, SHIM_EVENT_LAUNCHER_CLOSED);
    CHECK_STR(event(LEASE_US + 3122ull * SECOND_US - 1, SHIM_EVENT_TICK), "");
    CHECK_STR(event(LEASE_US + 3122ull * SECOND_US, SHIM_EVENT_TICK), "exit");
}

TEST(an_end_after_launcherd_went_is_kept_for_a_minute)
{
    running(1);
    event(6, SHIM_EVENT_LAUNCHER_CLOSED);
    exited(7, 0, 0, 0);
    event(8, SHIM_EVENT_TREE_EMPTY);
    CHECK_EQ(actions.timer_at_us, 8 + 60ull * SECOND_US);
    CHECK_STR(event(8 + 60ull * SECOND_US, SHIM_EVENT_TICK), "exit");
}

TEST(an_end_that_is_on_no_disk_is_kept_for_an_hour)
{
    const struct shim_event late = {.type = SHIM_EVENT_END_KEPT, .text = "the disk is full"};

    disk_hangs = true;
    running(1);
    exited(6, 0, 0, 0);
    event(7, SHIM_EVENT_TREE_EMPTY);
    CHECK_STR(step(7, late), "report(ended)");
    event(8, SHIM_EVENT_LAUNCHER_CLOSED);
    CHECK_EQ(actions.timer_at_us, LEASE_US + 3600ull * SECOND_US);
    CHECK_STR(event(actions.timer_at_us - 1, SHIM_EVENT_TICK), "");
    CHECK_STR(event(LEASE_US + 3600ull * SECOND_US, SHIM_EVENT_TICK), "exit");
    disk_hangs = false;
}

/* The largest number of actions in one step. */
TEST(every_worker_of_a_full_node_gets_the_world_at_once)
{
    uint32_t world_count = 0;
    ready(SLOTS_PER_NODE_MAX);
    go(5, 2);
    for (uint32_t i = 0; i < SLOTS_PER_NODE_MAX; i++)
        spawned(6, i);
    for (uint32_t i = 0; i < SLOTS_PER_NODE_MAX; i++)
        join(7, i, 2, i, "");
    world(8, "blob");
    for (uint32_t i = 0; i < actions.count; i++)
        world_count += actions.items[i].type == SHIM_SEND_WORLD;
    CHECK_EQ(world_count, SLOTS_PER_NODE_MAX);
    CHECK(actions.items[actions.count - 1].type == SHIM_SEND_REPORT);
}

TEST(a_job_that_cannot_run_here_ends_before_it_starts)
{
    begin(0, 2);
    step(1, (struct shim_event){.type = SHIM_EVENT_CANNOT_START,
                                .code = 126,
                                .text = "node b: working directory /x does not exist"});
    CHECK_EQ(shim.phase, SHIM_ENDED);
    CHECK_EQ(shim.failed_rank, -1);
    CHECK_EQ(shim.failed_errno_exit, 126);
    CHECK_EQ(shim.failed_class, FAILURE_PROGRAM);
    CHECK_STR(shim.cause, "node b: working directory /x does not exist");
    CHECK_STR(event(2, SHIM_EVENT_START), ""); /* too late */
    CHECK_EQ(shim.phase, SHIM_ENDED);

    begin(0, 2); /* not its own fault: the start may be tried again */
    step(1, (struct shim_event){
                .type = SHIM_EVENT_CANNOT_START, .code = 125, .text = "the disks do not answer"});
    CHECK_EQ(shim.phase, SHIM_ENDED);
    CHECK_EQ(shim.failed_errno_exit, 0);
    CHECK_EQ(shim.failed_class, FAILURE_NODE);

    begin(0, 2); /* stopped during the check */
    stop(1, 15, 0);
    CHECK_EQ(shim.phase, SHIM_ENDED);
    step(2, (struct shim_event){.type = SHIM_EVENT_CANNOT_START, .code = 126, .text = "no"});
    CHECK_STR(shim.cause, "");
}

TEST_MAIN
