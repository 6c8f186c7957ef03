/* The gauges of a node: the JSON of known and unknown values, and the load of the processors. */
#include "launcherd/gpu/gauges.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"

#define SECOND_US 1000000ull

static char *written(const struct gauges *gauges)
{
    struct buf out = {0};

    gauges_write(gauges, &out);
    buf_add(&out, "", 1);
    CHECK(!out.failed);
    return out.bytes;
}

TEST(known_values_are_numbers_and_unknown_ones_null)
{
    struct gauges *gauges = calloc(1, sizeof *gauges);
    char *text;

    CHECK(gauges != NULL);
    gauges->now_us = 12 * SECOND_US;
    (void)snprintf(gauges->node, sizeof gauges->node, "gpu01");
    gauges->host = (struct host_gauges){.load = {0.5, 1.25, 2},
                                        .cpus = 16,
                                        .cpu_percent = 12.34,
                                        .memory_total_bytes = 1LL << 36,
                                        .memory_available_bytes = 1LL << 35,
                                        .disk_total_bytes = GAUGE_UNKNOWN,
                                        .disk_free_bytes = GAUGE_UNKNOWN,
                                        .up_s = 12};
    gauges->slot_count = 3;
    gauges->gpu_count = 2;
    gauges->slots[0] =
        (struct slot_gauges){.state = SLOT_BUSY, .job_id = 41, .generation = 2, .rank = 0};
    gauges->slots[1].state = SLOT_UNKNOWN;
    (void)snprintf(gauges->slots[1].reason, REASON_BYTES_MAX, "NVML \"hangs\"");
    gauges->gpus[0] = (struct gpu_gauges){.read_us = 11 * SECOND_US + 500000,
                                          .name = "H200",
                                          .uuid = "GPU-1",
                                          .utilization_percent = 0,
                                          .temperature_c = 64,
                                          .power_mw = 412540,
                                          .power_limit_mw = GAUGE_UNKNOWN,
                                          .memory_used_bytes = 2048,
                                          .memory_total_bytes = 4096};
    (void)snprintf(gauges->gpus[1].error, sizeof gauges->gpus[1].error, "GPU is lost");
    text = written(gauges);
    CHECK_STR(
        text,
        "{\"schema\":\"ddp.gauges.v1\",\"node\":\"gpu01\",\"load\":[0.5,1.25,2],\"cpus\":16,"
        "\"cpu_percent\":12.3,\"memory_total_bytes\":68719476736,\"memory_available_bytes\":"
        "34359738368,\"disk_total_bytes\":null,\"disk_free_bytes\":null,\"up_s\":12,\"slots\":["
        "{\"slot\":0,\"state\":\"busy\",\"job_id\":41,\"generation\":2,\"rank\":0,\"reason\":null,"
        "\"gpu\":\"H200\",\"uuid\":\"GPU-1\",\"utilization_percent\":0,\"memory_used_bytes\":2048,"
        "\"memory_total_bytes\":4096,\"temperature_c\":64,\"power_w\":412.5,\"power_limit_w\":null,"
        "\"age_s\":0.5,\"error\":null},"
        "{\"slot\":1,\"state\":\"unknown\",\"job_id\":null,\"generation\":null,\"rank\":null,"
        "\"reason\":\"NVML \\\"hangs\\\"\",\"gpu\":null,\"uuid\":null,\"utilization_percent\":null,"
        "\"memory_used_bytes\":null,\"memory_total_bytes\":null,\"temperature_c\":null,\"power_w\":"
        "null,\"power_limit_w\":null,\"age_s\":null,\"error\":\"GPU is lost\"},"
        "{\"slot\":2,\"state\":\"free\",\"job_id\":null,\"generation\":null,\"rank\":null,"
        "\"reason\":null}]}");
    free(text);
    free(gauges);
}

/* user nice system idle iowait irq softirq steal guest guest_nice */
TEST(the_load_is_that_between_two_readings)
{
    struct cpu_times times = {0};

    cpu_times_take(&times, "cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 1", SECOND_US);
    CHECK(times.percent < 0); /* one reading is not enough */
    cpu_times_take(&times, "cpu  130 0 120 720 130 0 0 0 50 0\n", 2 * SECOND_US);
    CHECK(times.percent > 49.9 && times.percent < 50.1);
    cpu_times_take(&times, "cpu  930 0 120 720 130 0 0 0 50 0\n", 2 * SECOND_US + 1000);
    CHECK(times.percent > 49.9 && times.percent < 50.1); /* too soon after the last reading */
    cpu_times_take(&times, "cpu  230 0 120 720 130 0 0 0 50 0\n", 3 * SECOND_US);
    CHECK(times.percent > 99.9 && times.percent <= 100);
    cpu_times_take(&times, "cpu  1 0 1 1 1\n", 4 * SECOND_US); /* too short: as before */
    CHECK(times.percent > 99.9 && times.percent <= 100);
    cpu_times_take(&times, "", 5 * SECOND_US);
    CHECK(times.percent > 99.9 && times.percent <= 100);
}

TEST(this_machine_has_gauges)
{
    struct cpu_times times = {0};
    struct host_gauges host;

    host_gauges_read(&host, &times, 100 * SECOND_US, "/");
    CHECK(host.load[0] >= 0 && host.cpus > 0 && host.up_s == 100);
    CHECK(host.memory_total_bytes > 0 && host.memory_available_bytes > 0 &&
          host.memory_available_bytes <= host.memory_total_bytes);
    CHECK(host.disk_total_bytes > 0 && host.disk_free_bytes <= host.disk_total_bytes);
    host_gauges_read(&host, &times, 101 * SECOND_US, "/no/such/folder");
    CHECK_EQ(host.disk_total_bytes, GAUGE_UNKNOWN);
}

TEST_MAIN
