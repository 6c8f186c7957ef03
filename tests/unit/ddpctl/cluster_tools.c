#include "tests/unit/ddpctl/cluster_tools.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

static void add_jobs(struct cluster *cluster)
{
    const struct part_job items[] = {
        {.job_id = 41,
         .name = "r50",
         .user = "a\"b\\c<d>",
         .state = JOB_RUNNING,
         .nodes = 1,
         .nproc_per_node = 2,
         .ranks_running = 2,
         .restarts = 1,
         .generation = 2,
         .where = "gpu<01>",
         .straggler = "",
         .reason = "",
         .submitted_ms = 1795224000000,
         .started_ms = 1795224010500,
         .epoch = 2,
         .epochs = 10,
         .step = 340,
         .steps = 1000,
         .loss = 0.4321,
         .samples_per_s = 5120,
         .checkpoint_step = 300},
        {.job_id = 42,
         .name = "later",
         .user = "ben",
         .state = JOB_QUEUED,
         .nodes = 2,
         .nproc_per_node = 4,
         .where = "",
         .straggler = "",
         .reason = "waits for <b>8</b> slots",
         .submitted_ms = 1795224020000},
        {.job_id = 43,
         .name = "new",
         .user = "ben",
         .state = JOB_STARTING,
         .nodes = 1,
         .nproc_per_node = 1,
         .where = "",
         .straggler = "",
         .reason = ""},
    };
    const struct part_job done = {.job_id = 40,
                                  .name = "done",
                                  .user = "ann",
                                  .state = JOB_FAILED,
                                  .ended = true,
                                  .nodes = 1,
                                  .nproc_per_node = 1,
                                  .where = "",
                                  .straggler = "",
                                  .reason = "rank 0 exited with code 3",
                                  .started_ms = 1795223000000,
                                  .ended_ms = 1795223060000};
    const struct msg_jobs active = {.jobs = {.items = items, .count = 3}};
    const struct msg_jobs newest = {.jobs = {.items = &done, .count = 1}};

    CHECK(cluster_add_jobs(cluster, &active, NULL, 90 * SECOND_US));
    CHECK(cluster_add_newest(cluster, &newest));
    cluster->jobs[0].steps_per_s = 10;
}

static void add_nodes(struct cluster *cluster)
{
    const struct part_node nodes[] = {
        {.name = "gpu01",
         .state = NODE_UP,
         .address = "10.0.0.1",
         .slots = 3,
         .slots_free = 0,
         .slots_closed = 1,
         .gpus = 2,
         .drain_reason = "",
         .drained_by = "",
         .version = "1",
         .notice = "",
         .beat_age_us = 500000},
        {.name = "gpu02",
         .state = NODE_LOST,
         .address = "10.0.0.2",
         .slots = 2,
         .slots_free = 2,
         .drained = true,
         .drain_reason = "fan <loud>",
         .drained_by = "ann",
         .version = "1",
         .notice = "",
         .beat_age_us = -1},
    };
    const struct part_slot slot = {.node = "gpu01",
                                   .slot = 1,
                                   .state = SLOT_QUARANTINED,
                                   .reason = "a process of <eve>",
                                   .drained_by = ""};
    const struct msg_nodes page = {.nodes = {.items = nodes, .count = 2},
                                   .slots = {.items = &slot, .count = 1}};

    CHECK(cluster_add_nodes(cluster, &page));
}

static const char gauges[] =
    "{\"schema\":\"ddp.gauges.v1\",\"node\":\"gpu01\",\"load\":[1.5,1,1],\"cpus\":16,"
    "\"cpu_percent\":12.5,\"memory_total_bytes\":68719476736,\"memory_available_bytes\":"
    "34359738368,"
    "\"disk_total_bytes\":1000,\"disk_free_bytes\":null,\"up_s\":99,\"slots\":["
    "{\"slot\":0,\"state\":\"busy\",\"job_id\":41,\"generation\":2,\"rank\":0,\"reason\":null,"
    "\"gpu\":"
    "\"H200 "
    "<x>\",\"uuid\":\"GPU-\\\"1\\\"\",\"utilization_percent\":87,\"memory_used_bytes\":2147483648,"
    "\"memory_total_bytes\":85899345920,\"temperature_c\":64,\"power_w\":412.5,\"power_limit_w\":"
    "700,"
    "\"age_s\":0.1,\"error\":null},"
    "{\"slot\":1,\"state\":\"quarantined\",\"job_id\":null,\"generation\":null,\"rank\":null,"
    "\"reason\":"
    "\"x\",\"gpu\":null,\"uuid\":null,\"utilization_percent\":null,\"memory_used_bytes\":null,"
    "\"memory_total_bytes\":null,\"temperature_c\":null,\"power_w\":null,\"power_limit_w\":null,"
    "\"age_s\":null,\"error\":\"GPU is lost\"},"
    "{\"slot\":2,\"state\":\"busy\",\"job_id\":41,\"generation\":2,\"rank\":1,\"reason\":null}]}";

void fixture_open(struct fixture *fixture)
{
    struct err err = {0};

    *fixture = (struct fixture){
        .view = {.now_us = 100 * SECOND_US, .now_ms = 1795224042123, .lost_why = ""}};
    add_jobs(&fixture->cluster);
    add_nodes(&fixture->cluster);
    fixture->cluster.taken_us = 99 * SECOND_US + 500000;
    fixture->cluster.wall_ms = 1795224041623;
    fixture->cluster.server = (struct cluster_server){.version = "0.1.0",
                                                      .is_known = true,
                                                      .info = {.up_us = 3723 * SECOND_US,
                                                               .submitted = 43,
                                                               .succeeded = 30,
                                                               .failed = 9,
                                                               .cancelled = 1,
                                                               .store_writes = 1234,
                                                               .connections = 7}};
    CHECK(gauges_table_fit(&fixture->gauges, &fixture->cluster));
    CHECK_EQ(node_gauges_parse(&fixture->gauges.rows[0].gauges, gauges, strlen(gauges), &err),
             STATUS_OK);
    fixture->gauges.rows[0].is_known = true;
    fixture->gauges.rows[0].read_us = 98 * SECOND_US;
    fixture->view.cluster = &fixture->cluster;
    fixture->view.gauges = &fixture->gauges;
}

void fixture_close(struct fixture *fixture)
{
    cluster_free(&fixture->cluster);
    gauges_table_free(&fixture->gauges);
}

void add_many_nodes(struct cluster *cluster, uint32_t count)
{
    struct part_node node = {.state = NODE_UP,
                             .address = "",
                             .slots = 8,
                             .slots_free = 8,
                             .drain_reason = "",
                             .drained_by = "",
                             .version = "",
                             .notice = ""};
    const struct msg_nodes page = {.nodes = {.items = &node, .count = 1}};
    char name[32];

    node.name = name;
    for (uint32_t i = 0; i < count; i++) {
        (void)snprintf(name, sizeof name, "node%04u", i);
        CHECK(cluster_add_nodes(cluster, &page));
    }
}
