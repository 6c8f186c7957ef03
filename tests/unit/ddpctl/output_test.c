/* The output of ddpctl against golden/NAME.ok. To update the golden files, run DDP_UPDATE_GOLDEN=1
 * build/tests/unit/ddpctl/test-ddpctl-output and review the difference. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddpctl/output.h"
#include "tests/lib/test.h"
#include "tests/unit/ddpctl/golden_tools.h"

#define NOW_MS 1795224042123
#define MINUTE_MS 60000

static const struct output_style style = {.now_ms = NOW_MS};

static const struct part_job elastic = {
    .state = JOB_RUNNING, .nodes = 2, .nodes_min = 1, .nodes_max = 4};

static const struct part_job running = {.job_id = 41,
                                        .name = "r50",
                                        .user = "ada",
                                        .state = JOB_RUNNING,
                                        .generation = 2,
                                        .restarts = 1,
                                        .max_restarts = 3,
                                        .restarts_without_progress = 1,
                                        .nodes = 2,
                                        .nproc_per_node = 8,
                                        .ranks_running = 16,
                                        .where = "gpu[01-02]",
                                        .straggler = "",
                                        .reason = "restarted once, rank 9 out of memory",
                                        .submitted_ms = NOW_MS - 63 * MINUTE_MS,
                                        .started_ms = NOW_MS - 62 * MINUTE_MS,
                                        .epoch = 2,
                                        .epochs = 10,
                                        .step = 12400,
                                        .steps = 90000,
                                        .loss = 2.3126,
                                        .samples_per_s = 5120,
                                        .checkpoint_step = 12000};
static const struct part_job queued = {.job_id = 42,
                                       .name = "sweep",
                                       .user = "ada",
                                       .state = JOB_QUEUED,
                                       .max_restarts = 3,
                                       .nodes = 1,
                                       .nproc_per_node = 8,
                                       .where = "",
                                       .straggler = "",
                                       .reason = "wants 8 GPUs on one node, best has 4",
                                       .submitted_ms = NOW_MS - 3 * MINUTE_MS};
static const struct part_job failed = {.job_id = 40,
                                       .name = "vit",
                                       .user = "bob",
                                       .state = JOB_FAILED,
                                       .generation = 1,
                                       .max_restarts = 0,
                                       .nodes = 1,
                                       .nproc_per_node = 2,
                                       .where = "gpu03",
                                       .straggler = "",
                                       .reason = "rank 1 was killed by signal 9 (SIGKILL)",
                                       .ended = true,
                                       .exit_code = 137,
                                       .signal = 9,
                                       .submitted_ms = NOW_MS - 20000,
                                       .started_ms = NOW_MS - 19000,
                                       .ended_ms = NOW_MS - 7000};

static const struct part_job_rank failed_ranks[] = {
    {.rank = 0,
     .local_rank = 0,
     .node = "gpu03",
     .slot = 0,
     .pid = 4711,
     .state = RANK_STOPPED,
     .signal = 15},
    {.rank = 1,
     .local_rank = 1,
     .node = "gpu03",
     .slot = 5,
     .pid = 4712,
     .state = RANK_EXITED,
     .signal = 9},
};
static const char *const words[] = {"python3", "train it.py", "--lr", "1e-4"};
static const struct msg_job_info failed_info = {.version = 9,
                                                .jobs = {.items = &failed, .count = 1},
                                                .ranks = {.items = failed_ranks, .count = 2},
                                                .failed_rank = 1,
                                                .failed_node = "gpu03",
                                                .tail =
                                                    "1\n2\n3\n4\n5\nRuntimeError: \x1b[31mred\n",
                                                .argv = {.items = words, .count = 4},
                                                .cwd = "/home/bob"};
static const struct part_job_rank running_ranks[] = {
    {.rank = 0, .node = "gpu01", .pid = 99, .state = RANK_RUNNING},
    {.rank = 1, .local_rank = 1, .node = "gpu01", .slot = 1, .state = RANK_WAITING},
};
static const struct msg_job_info running_info = {.version = 3,
                                                 .jobs = {.items = &running, .count = 1},
                                                 .ranks = {.items = running_ranks, .count = 2},
                                                 .failed_rank = -1,
                                                 .failed_node = "",
                                                 .tail = "",
                                                 .argv = {.items = words, .count = 1},
                                                 .cwd = "/"};

TEST(ps)
{
    struct part_job jobs[] = {running, queued, failed};
    struct msg_jobs msg = {.jobs = {.items = jobs, .count = 3}};
    struct output_style colored = {.now_ms = NOW_MS, .color = true};
    struct buf out = {0};

    output_jobs(&msg, &style, &out);
    check_golden("ps", &out);
    output_jobs(&msg, &colored, &out);
    check_golden("ps-color", &out);
    output_jobs_json(&msg, &out);
    check_json(&out);
    check_golden("ps-json", &out);
}

TEST(status)
{
    struct buf out = {0};

    output_status(&failed_info, &style, &out);
    check_golden("status-failed", &out);
    output_status(&running_info, &style, &out);
    check_golden("status-running", &out);
    output_status_json(&failed_info, &out);
    output_status_json(&running_info, &out);
    check_json(&out);
    check_golden("status-json", &out);
}

TEST(sentences)
{
    struct output_turn resumed = {.job_id = 41,
                                  .generation = 2,
                                  .world = 16,
                                  .checkpoint_step = 12000,
                                  .cause = "rank 9 was killed by signal 9 (SIGKILL)"};
    struct part_job swept = {.job_id = 9,
                             .array_job = 7,
                             .array_index = 2,
                             .array_count = 4,
                             .name = "sweep",
                             .state = JOB_QUEUED,
                             .reason = ""};
    const struct msg_job_info swept_info = {.jobs = {.items = &swept, .count = 1}};
    struct output_turn again = {.job_id = 41, .generation = 3, .world = 1, .cause = ""};
    struct buf out = {0};

    output_turn(&resumed, &out);
    buf_add_text(&out, "\n");
    output_turn(&again, &out);
    buf_add_text(&out, "\n");
    output_verdict(&failed_info, &out);
    buf_add_text(&out, "\n");
    output_verdict(&swept_info, &out);
    buf_add_text(&out, "\n");
    output_progress(&running, &out);
    buf_add_text(&out, "\n");
    output_progress(&queued, &out);
    output_turn_json(&resumed, &out);
    check_golden("sentences", &out);
}

TEST(submitted)
{
    struct msg_pair env[] = {{"A", "1"}};
    struct msg_submit submit = {.array = "",
                                .request_id = "00112233445566778899aabbccddeeff",
                                .name = "r50",
                                .nodes = 2,
                                .nproc_per_node = 8,
                                .max_restarts = 3,
                                .grace_us = 10000000,
                                .cwd = "/home/ada",
                                .after = "",
                                .argv = {.items = words, .count = 2},
                                .env = {.items = env, .count = 1}};
    struct buf out = {0};

    output_submitted(&submit, 41, true, NULL, &out);
    submit.nodes = submit.nproc_per_node = 1;
    submit.max_restarts = 0;
    output_submitted(&submit, 42, false, "unix:/x", &out);
    check_golden("submitted", &out);
    output_submit_json(&submit, &out);
    output_submitted_json(&submit, 41, true, &out);
    check_json(&out);
    check_golden("submitted-json", &out);
}

TEST(nodes_and_events)
{
    struct part_node nodes[] = {{.name = "gpu01",
                                 .state = NODE_UP,
                                 .address = "10.0.0.1",
                                 .slots = 8,
                                 .slots_free = 3,
                                 .slots_closed = 2,
                                 .gpus = 8,
                                 .drain_reason = "",
                                 .drained_by = "",
                                 .pid = 12,
                                 .version = "0.1.0",
                                 .notice = "another launcherd wants this name: pid 7 at 10.0.0.9, "
                                           "on another machine; it is refused",
                                 .beat_age_us = 400000},
                                {.name = "cpu-1",
                                 .state = NODE_LOST,
                                 .address = "",
                                 .slots = 64,
                                 .slots_free = 0,
                                 .slots_closed = 64,
                                 .drained = true,
                                 .drain_reason = "fan\x1b[2J",
                                 .drained_by = "ann",
                                 .drained_ms = NOW_MS,
                                 .version = "",
                                 .notice = "",
                                 .beat_age_us = -1}};
    struct part_event events[] = {{.id = 1, .at_ms = NOW_MS, .text = "node gpu01 is up"},
                                  {.id = 2,
                                   .at_ms = NOW_MS,
                                   .job_id = 41,
                                   .generation = 2,
                                   .text = "rank 9 exited with code 1"}};
    struct part_slot slots[] = {
        {.node = "gpu01",
         .slot = 3,
         .state = SLOT_QUARANTINED,
         .reason = "pid 4711 (python3 of bob) holds 1830 MiB",
         .drained_by = "",
         .since_ms = NOW_MS},
        {.node = "gpu01",
         .slot = 5,
         .state = SLOT_DRAINED,
         .job_id = 41,
         .generation = 2,
         .reason = "loud",
         .drained_by = "ann",
         .since_ms = NOW_MS},
        {.node = "cpu-1", .slot = 0, .state = SLOT_DRAINED, .reason = "fan", .drained_by = "ann"},
        {.node = "gpu01", .slot = 6, .state = SLOT_FREE, .reason = "", .drained_by = ""}};
    struct msg_nodes msg_nodes = {.nodes = {.items = nodes, .count = 2},
                                  .slots = {.items = slots, .count = 3}};
    struct msg_nodes msg_node = {.nodes = {.items = nodes, .count = 1},
                                 .slots = {.items = slots, .count = 4}};
    struct msg_events msg_events = {.events = {.items = events, .count = 2}};
    struct buf out = {0};

    output_nodes(&msg_nodes, &style, &out);
    output_node(&msg_node, &style, &out);
    output_events(&msg_events, &out);
    check_golden("nodes-events", &out);
    output_nodes_json(&msg_nodes, &out);
    output_node_json(&msg_node, &out);
    output_events_json(&msg_events, &out);
    output_event_line_json(&events[1], &out);
    check_json(&out);
    check_golden("nodes-events-json", &out);
}

TEST(the_status_says_why)
{
    struct output_style told = {.now_ms = NOW_MS, .why = "rank 5 failed"};
    struct buf out = {0};

    output_status(&failed_info, &told, &out);
    buf_add(&out, "", 1);
    CHECK(strstr(out.bytes, "  why        rank 5 failed\n             more: ddpctl why 40\n"));
    CHECK(strstr(out.bytes, "  reason") == NULL);
    buf_free(&out);
    out = (struct buf){0};
    output_status(&running_info, &style, &out);
    buf_add(&out, "", 1);
    CHECK(strstr(out.bytes, "  why") == NULL);
    buf_free(&out);
}

TEST(ends_and_errors)
{
    struct buf out = {0};

    output_exit_json(&failed_info, 137, false, &out);
    output_exit_json(NULL, 125, true, &out);
    output_error_json("not_found", "there is no job 9", "list them: ddpctl ps -a", &out);
    check_json(&out);
    check_golden("ends", &out);
}

TEST(errors_are_valid_utf8)
{
    struct buf out = {0};

    output_error_json("usage", "'\xff\xc3\xa9\xc3' is no name", "see \xfe", &out);
    check_json(&out);
    buf_add(&out, "", 1);
    CHECK_STR(out.bytes,
              "{\"error\":{\"code\":\"usage\",\"message\":\"'\xef\xbf\xbd\xc3\xa9\xef\xbf"
              "\xbd' is no name\",\"hint\":\"see \xef\xbf\xbd\"}}\n");
    buf_free(&out);
}

TEST(a_job_says_how_many_of_its_nodes_it_has)
{
    struct part_job waiting = elastic;
    char text[TEXT_BYTES];

    waiting.state = JOB_QUEUED;
    output_nodes_of(&elastic, text);
    CHECK_STR(text, "2 of 1:4 nodes");
    output_nodes_of(&waiting, text);
    CHECK_STR(text, "1:4 nodes");
    output_nodes_of(&running, text);
    CHECK_STR(text, "");
}

TEST(progress_says_of_which_generation_it_is)
{
    struct part_job job = running;
    struct buf out = {0};

    job.progress_generation = 2;
    output_progress(&job, &out);
    buf_add_text(&out, "\n");
    job.progress_generation = 1;
    output_progress(&job, &out);
    buf_add(&out, "", 1);
    CHECK_STR(out.bytes,
              "epoch 2/10  step 12.4k/90k  14%  loss 2.3126  5.1k/s\n"
              "epoch 2/10  step 12.4k/90k  14%  loss 2.3126  5.1k/s  (of generation 1, the "
              "newest that told any)");
    buf_free(&out);
    output_jobs(&(struct msg_jobs){.jobs = {.items = &job, .count = 1}}, &style, &out);
    buf_add(&out, "", 1);
    CHECK(strstr(out.bytes, "5.1k/s") == NULL); /* no job trains at that rate now */
    buf_free(&out);
}

TEST_MAIN
