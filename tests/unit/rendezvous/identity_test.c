/* A node's name that comes back: whose shims are gone, and who may have the name. */
#include "tests/unit/rendezvous/identity_tools.h"

#include <string.h>

#include "tests/lib/test.h"

TEST(the_same_state_directory_is_proof)
{
    run_as(first, false);
    close_a();
    hello_as(3, first, NULL, 0);
    check_gone();

    run_as(first, false); /* in a later boot, too */
    close_a();
    pass(1);
    hello_as(3, (struct who){"m1", "s1", "b2", 1}, NULL, 0);
    check_gone();
}

TEST(another_boot_of_the_machine_is_proof)
{
    run_as(first, false);
    close_a();
    pass(1);
    hello_as(3, rebooted, NULL, 0);
    check_gone();

    run_as(first, false); /* also for a job that waits for the lease */
    pass(20);
    check(JOB_RESTARTING, 1);
    hello_as(3, rebooted, NULL, 0);
    check(JOB_STARTING, 2);
}

static void check_waits(struct who who)
{
    run_as(first, false);
    close_a();
    pass(1);
    hello_as(3, who, NULL, 0);
    CHECK(has_to_wait());
    check(JOB_RUNNING, 1);
    pass(19);
    check(JOB_RESTARTING, 1); /* lost: it waits for the lease */
    hello_as(4, who, NULL, 0);
    CHECK(has_to_wait());
    CHECK(strstr(find(RDZV_CLOSE_NODE)->text, "pid 1 at 127.0.0.1") != NULL);
    CHECK(strstr(find(RDZV_CLOSE_NODE)->text, "for 40 s more") != NULL);
    CHECK(strstr(node_a().notice, "pid 4 at 127.0.0.1") != NULL);
    check(JOB_RESTARTING, 1);
    pass(39);
    check(JOB_RESTARTING, 1);
    hello_as(5, who, NULL, 0);
    CHECK(has_to_wait());
    pass(1);
    check(JOB_STARTING, 2); /* on b */
    hello_as(6, who, NULL, 0);
    CHECK(is_welcome()); /* without an operator: a machine that was installed anew */
    CHECK_STR(node_a().notice, "");
    CHECK_EQ(node_a().slots_free, 1);
}

TEST(another_machine_waits_for_the_lease)
{
    check_waits(other_machine);
}

TEST(a_copied_state_directory_on_another_machine_waits)
{
    check_waits(copied_state);
}

TEST(another_state_directory_on_the_machine_waits)
{
    check_waits(other_state);
}

TEST(a_silent_node_keeps_its_job_and_its_name)
{
    const struct part_beat_shim shim = {1, 1, SHIM_RUNNING, 1, false};

    run_as(first, false);
    pass(8); /* silent, still connected */
    hello_as(3, other_machine, NULL, 0);
    CHECK(has_to_wait());
    step_beat(1, &shim, 1);
    CHECK_EQ(count_of(RDZV_SEND_BEAT_ACK), 1);
    check(JOB_RUNNING, 1);
    CHECK_EQ(rdzv_node_conn(core, "a"), 1);
}

TEST(one_that_beats_is_named_to_the_second)
{
    run_as(first, false);
    hello_as(3, other_machine, NULL, 0);
    CHECK_EQ(find(RDZV_CLOSE_NODE)->status, STATUS_CONFLICT);
    CHECK_STR(find(RDZV_CLOSE_NODE)->text,
              "a node named a is connected already: pid 1 at 127.0.0.1, on another machine; make "
              "a key for this machine (ddpctl node add NAME), or without a key choose another "
              "--name");
    CHECK_EQ(count_of(RDZV_LOG_EVENT), 1);
    CHECK_STR(node_a().notice, "another launcherd wants this name: pid 3 at 127.0.0.1, on another "
                               "machine; it is refused");
    hello_as(4, other_state, NULL, 0);
    CHECK_STR(find(RDZV_CLOSE_NODE)->text,
              "a node named a is connected already: pid 1 at 127.0.0.1; make a key for this "
              "machine (ddpctl node add NAME), or without a key choose another --name");
    CHECK_EQ(count_of(RDZV_LOG_EVENT), 0); /* one line for a series */
    CHECK_STR(node_a().notice, "another launcherd wants this name: pid 4 at 127.0.0.1, on the same "
                               "machine; it is refused");
}

/* It was started again while the connection of before still counted: it is no twin of itself. */
TEST(one_that_was_started_again_is_not_shown_as_another_one)
{
    run_as(first, false);
    hello_as(3, first, NULL, 0);
    CHECK(strstr(node_a().notice, "another launcherd wants this name: pid 3") != NULL);
    close_a();
    hello_as(4, first, NULL, 0);
    CHECK(is_welcome());
    CHECK_STR(node_a().notice, "");

    run_as(first, false); /* a real twin stays shown */
    hello_as(3, other_machine, NULL, 0);
    close_a();
    hello_as(4, first, NULL, 0);
    CHECK(is_welcome());
    CHECK(strstr(node_a().notice, "another launcherd wants this name: pid 3") != NULL);
}

/* A container without a machine id: the boot says that it is the same machine. */
TEST(without_a_machine_id_the_boot_tells)
{
    const struct who contained = {"", "s1", "b1", 0};

    run_as(contained, false);
    close_a();
    hello_as(3, contained, NULL, 0);
    check_gone();

    run_as(contained, false);
    close_a();
    hello_as(3, (struct who){"", "s2", "b1", 0}, NULL, 0);
    CHECK(has_to_wait());

    run_as(contained, false); /* another boot, of whichever machine */
    close_a();
    hello_as(3, (struct who){"", "s1", "b2", 0}, NULL, 0);
    CHECK(is_welcome());
    check(JOB_RUNNING, 1);

    run_as((struct who){"", "s1", "unknown", 0}, false);
    close_a();
    hello_as(3, (struct who){"", "s1", "unknown", 0}, NULL, 0);
    CHECK(is_welcome());
    check(JOB_RUNNING, 1);
}

/* Nothing is on the node: its name may move as soon as the first one is gone. */
TEST(the_name_of_an_idle_node_moves)
{
    begin_leased(4, 3, LEASE_US);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    hello_as(1, first, NULL, 0);
    now_us += 8 * SECOND_US;
    hello_as(2, other_machine, NULL, 0); /* it may be slow */
    CHECK(has_to_wait());
    close_a();
    hello_as(3, other_machine, NULL, 0);
    CHECK(is_welcome());
    hello_as(4, first, NULL, 0);
    CHECK_EQ(find(RDZV_CLOSE_NODE)->status, STATUS_CONFLICT);
}

/* What the launcherd of connection 3 says about the part that it cannot see. */
static const struct part_beat_shim unseen = {1, 1, SHIM_PREPARING, 0, true};

/* The same launcherd, which has lost sight of the part: it counts until its lease is over. */
TEST(an_unseen_part_counts_until_the_lease)
{
    run_as(first, false);
    close_a();
    pass(1);
    hello_as(3, first, &unseen, 1);
    CHECK(is_welcome());
    check(JOB_RUNNING, 1);
    CHECK_EQ(node_a().slots_free, 0);
    for (uint32_t i = 1; i < 60; i++) {
        pass(1);
        step_beat(3, &unseen, 1);
        CHECK_EQ(count_of(RDZV_SEND_STOP) + count_of(RDZV_SEND_START) + count_of(RDZV_SEND_FORGET),
                 0);
        check(JOB_RUNNING, 1);
    }
    pass(1);
    step_beat(3, &unseen, 1);
    check(JOB_STARTING, 2);
    step_beat(3, &unseen, 1); /* it is of the past */
    CHECK_EQ(count_of(RDZV_SEND_FORGET), 1);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 0);
}

TEST(an_unseen_part_that_answers_goes_on)
{
    const struct part_beat_shim seen = {1, 1, SHIM_RUNNING, 1, false};

    run_as(first, false);
    close_a();
    pass(1);
    hello_as(3, first, &unseen, 1);
    step_beat(3, &seen, 1);
    report(3, SHIM_RUNNING, false);
    for (uint32_t i = 0; i < 70; i++) {
        pass(1);
        step_beat(3, &seen, 1);
        check(JOB_RUNNING, 1);
    }
}

/* A stop that it could not carry out is no end. */
TEST(a_cancelled_job_with_an_unseen_part_ends_with_the_lease)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL, .cancel = {.job = "1", .signal = 15, .grace_us = 0}};

    run_as(first, false);
    close_a();
    pass(1);
    hello_as(3, first, &unseen, 1);
    step((struct rdzv_event){.type = RDZV_EVENT_CANCEL, .client = 5, .job_id = 1, .msg = &msg});
    for (uint32_t i = 1; i < 60; i++) {
        pass(1);
        step_beat(3, &unseen, 1);
        CHECK_EQ(count_of(RDZV_SEND_FORGET), 0);
        CHECK(rdzv_job_record(core, 1)->state != JOB_CANCELLED);
    }
    pass(1);
    step_beat(3, &unseen, 1);
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_CANCELLED);
}

/* A launcherd of the version before says no ids: it is taken, and what it does not list is not
 * gone. */
TEST(without_ids_a_part_counts_until_the_lease)
{
    run_as(silent, false);
    close_a();
    pass(1);
    hello_as(3, silent, NULL, 0);
    CHECK(is_welcome());
    check(JOB_RUNNING, 1);
    CHECK_EQ(node_a().slots_free, 0);
    step_beat(3, NULL, 0);
    CHECK_EQ(count_of(RDZV_SEND_STOP) + count_of(RDZV_SEND_START), 0);
    runs_until_beat(59);
}

/* Nobody passes on what its ranks say, so their silence says nothing about them. */
TEST(a_part_that_the_launcherd_does_not_know_does_not_hang)
{
    struct msg msg = {.type = MSG_TYPE_PROGRESS,
                      .progress = {.job_id = 1, .generation = 1, .step = 1}};
    uint32_t looks = 0;

    run_as(silent, true);
    step_rank_report(1, (struct rank_report){
                            .job_id = 1, .phase = SHIM_RUNNING, .joined = true, .has_world = true});
    for (uint32_t i = 0; i < 3; i++) {
        now_us += SECOND_US;
        msg.progress.step++;
        step_node(1, &msg);
    }
    close_a();
    hello_as(3, silent, NULL, 0);
    for (uint32_t i = 0; i < 50; i++) { /* the lease is not over */
        pass(1);
        looks += count_of(RDZV_LOOK);
        step_beat(3, NULL, 0);
        looks += count_of(RDZV_LOOK);
        check(JOB_RUNNING, 1);
        CHECK_EQ(rdzv_job_record(core, 1)->stopping, 0);
    }
    CHECK_EQ(looks, 0);
}

/* The world is not sent to it, so it has let no deadline pass. */
TEST(a_launcherd_that_does_not_know_the_part_is_not_late_with_its_world)
{
    const struct part_beat_shim shim = {1, 1, SHIM_RUNNING, 1, false};

    run_as(silent, true);
    close_a();
    hello_as(3, silent, NULL, 0);
    for (uint32_t i = 0; i < 50; i++) { /* the lease is not over */
        pass(1);
        step_beat(3, NULL, 0);
        check(JOB_RUNNING, 1);
        CHECK_EQ(rdzv_job_record(core, 1)->stopping, 0);
    }
    for (uint32_t i = 0; i < 20; i++) { /* it does know it: the time counts from now on */
        step_beat(3, &shim, 1);
        CHECK_EQ(count_of(RDZV_SEND_WORLD), 1);
        CHECK_EQ(rdzv_job_record(core, 1)->stopping, 0);
        pass(1);
    }
    step_beat(3, &shim, 1);
    CHECK_EQ(rdzv_job_record(core, 1)->stopping, 1);
}

/* A part that was given to another process: no rank of it can have begun, so it is given up in time, and the node is not
 * blamed. */
TEST(a_start_that_nobody_knows_ends_before_the_lease)
{
    begin_leased(4, 3, LEASE_US);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    hello_as(1, silent, NULL, 0);
    CHECK_EQ(step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 3}),
             1);
    step_hello(2, (struct msg_node_hello){.name = "b", .instance = 2, .slots = 1});
    close_a();
    hello_as(3, silent, NULL, 0);
    for (uint32_t i = 0; i < 29; i++) {
        pass(1);
        step_beat(3, NULL, 0);
        check(JOB_STARTING, 1);
    }
    for (uint32_t i = 0; i < 3; i++) {
        pass(1);
        step_beat(3, NULL, 0);
    }
    check(JOB_STARTING, 2);
    CHECK_STR(rdzv_job_record(core, 1)->failed_node, "a");
    CHECK_STR(node_a().notice, "");
}

TEST(without_ids_a_stop_is_not_answered_by_one_that_knows_nothing)
{
    const struct part_beat_shim shim = {1, 1, SHIM_RUNNING, 1, false};
    struct msg msg = {.type = MSG_TYPE_CANCEL, .cancel = {.job = "1", .signal = 15, .grace_us = 0}};

    run_as(silent, false);
    close_a();
    hello_as(3, silent, NULL, 0);
    step((struct rdzv_event){.type = RDZV_EVENT_CANCEL, .client = 5, .job_id = 1, .msg = &msg});
    CHECK_EQ(count_of(RDZV_SEND_STOP), 0); /* it would answer that the part has ended */
    step_beat(3, NULL, 0);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 0);
    check(JOB_RUNNING, 1);
    step_beat(3, &shim, 1); /* it does know it */
    CHECK_EQ(count_of(RDZV_SEND_STOP), 1);
    report(3, SHIM_ENDED, false);
    CHECK_EQ(rdzv_job_record(core, 1) == NULL || rdzv_job_record(core, 1)->state == JOB_CANCELLED,
             true);
}

TEST(without_ids_a_list_ends_no_wait)
{
    run_as(silent, false);
    pass(20);
    check(JOB_RESTARTING, 1);
    hello_as(3, silent, NULL, 0);
    CHECK(is_welcome());
    step_beat(3, NULL, 0);
    check(JOB_RESTARTING, 1);
    CHECK_EQ(node_a().slots_free, 0); /* the first may still be on it */
    for (uint32_t i = 0; i < 40; i++) {
        check(JOB_RESTARTING, 1);
        pass(1);
        step_beat(3, NULL, 0);
    }
    check(JOB_STARTING, 2);
}

/* Ranks with a fence of their own start again elsewhere at once; their slots are free later. */
TEST(slots_of_ranks_that_nobody_saw_end_are_held)
{
    const struct part_beat_shim shim = {1, 2, SHIM_RUNNING, 1, false};

    run_as(silent, true);
    pass(16);
    check(JOB_STARTING, 2); /* on b */
    step_rank_report(2, (struct rank_report){.job_id = 1, .generation = 2, .phase = SHIM_READY});
    step_rank_report(2, (struct rank_report){
                            .job_id = 1, .generation = 2, .phase = SHIM_RUNNING, .joined = true});
    hello_as(3, silent, NULL, 0);
    for (uint32_t i = 0; i < 44; i++) {
        CHECK_EQ(node_a().slots_free, 0);
        now_us += SECOND_US;
        step_beat(2, &shim, 1);
        step_beat(3, NULL, 0);
    }
    CHECK_EQ(node_a().slots_free, 1);

    run_as(
        silent,
        true); /* a second connection of the one that does not know proves no more than its first */
    pass(16);
    hello_as(3, silent, NULL, 0);
    step_beat(3, NULL, 0);
    step_hello(4, (struct msg_node_hello){.name = "a", .boot_id = "b1", .instance = 3, .slots = 1});
    CHECK(is_welcome());
    CHECK_EQ(node_a().slots_free, 0);

    run_as(silent, true); /* the process that had them lists what it has */
    pass(16);
    step_hello(3, (struct msg_node_hello){.name = "a", .boot_id = "b1", .instance = 1, .slots = 1});
    CHECK(is_welcome());
    CHECK_EQ(node_a().slots_free, 1);

    run_as(first, true); /* the same launcherd knows that they are gone */
    pass(16);
    hello_as(3, first, NULL, 0);
    CHECK_EQ(node_a().slots_free, 1);
}

TEST(a_restarted_server_knows_whom_it_gave_a_part)
{
    run_as(first, false);
    restart();
    hello_as(3, other_machine, NULL, 0);
    CHECK(has_to_wait());
    CHECK(strstr(find(RDZV_CLOSE_NODE)->text,
                 "another launcherd (its pid and address are not known since the server started "
                 "again; on another machine or with another state directory), whose ranks may run "
                 "for 60 s more") != NULL);
    hello_as(4, other_state, NULL, 0);
    CHECK(has_to_wait());
    check(JOB_RUNNING, 1);
    hello_as(5, first, NULL, 0);
    check_gone();

    run_as(silent, false); /* as an earlier version has stored it */
    restart();
    hello_as(3, first, NULL, 0);
    CHECK(is_welcome());
    check(JOB_RUNNING, 1);
    runs_until_beat(60);
}

/* A lost node's part was given up; the server restarts before its lease is over. */
TEST(a_restarted_server_knows_what_is_held)
{
    struct rdzv_hold hold;

    run_as(first, true);
    pass(16);
    check(JOB_STARTING, 2); /* on b: its workers have a fence */
    CHECK_EQ(count_of(RDZV_PERSIST_HOLD), 0);
    rdzv_hold(core, "a", &hold);
    CHECK_EQ(hold.slot_mask, 1);
    CHECK_STR(hold.node, "a");
    begin_leased(4, 3, LEASE_US);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE_HOLD, .hold = &hold});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    hello_as(3, other_state, NULL, 0);
    CHECK(has_to_wait());
    CHECK_EQ(count_of(RDZV_PERSIST_HOLD), 0);
    hello_as(4, first, NULL, 0);
    CHECK(is_welcome());
    CHECK_EQ(count_of(RDZV_PERSIST_HOLD), 1); /* it is dropped */
    rdzv_hold(core, "a", &hold);
    CHECK_EQ(hold.slot_mask, 0);
    CHECK_EQ(node_a().slots_free, 1);

    hold.slot_mask = 1;
    begin_leased(4, 3, LEASE_US);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE_HOLD, .hold = &hold});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    now_us += LEASE_US + LEASE_MARGIN_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(count_of(RDZV_PERSIST_HOLD), 1);
    hello_as(3, other_state, NULL, 0);
    CHECK(is_welcome());
}

TEST_MAIN
