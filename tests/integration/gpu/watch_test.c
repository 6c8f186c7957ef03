/* gpu_watch on the stand-in for NVML: no Xid of a burst longer than its queue is lost; when the
 * driver hangs, gauges keep their last known values. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

#include "launcherd/gpu/gpu_watch.h"
#include "tests/lib/test.h"

#define BURST 300u
#define SECOND_US 1000000ull

static uint32_t numbers[BURST + 1];
static uint32_t number_count;

static void on_facts(void *owner, const struct gpu_facts *facts)
{
    (void)owner;
    (void)facts;
}

static void on_xid(void *owner, uint32_t slot, uint32_t xid)
{
    (void)owner;
    CHECK_EQ(slot, 1);
    CHECK(number_count < BURST);
    numbers[number_count++] = xid;
}

static void on_timeout(uv_timer_t *timer)
{
    uv_stop(timer->loop);
}

static void write_script(const char *path)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    (void)fprintf(file, "gpus 2\n");
    for (uint32_t i = 1; i <= BURST; i++)
        (void)fprintf(file, "xid %u 1 %u\n", i, i);
    CHECK(fclose(file) == 0);
}

TEST(a_burst_of_xids_loses_none)
{
    static const struct gpu_watch_handlers handlers = {on_facts, on_xid};
    char path[] = "/tmp/ddp-watch-XXXXXX";
    struct gpu_watch *watch = NULL;
    uv_timer_t timer;
    uv_loop_t loop;
    struct err err;
    uint32_t count = 0;
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    write_script(path);
    CHECK(setenv("STAND_IN_NVML", path, 1) == 0);
    CHECK(uv_loop_init(&loop) == 0 && uv_timer_init(&loop, &timer) == 0);
    CHECK(gpu_watch_new(&watch, &err) == STATUS_OK);
    CHECK(gpu_watch_count(watch, 60 * SECOND_US, &count, &err) == STATUS_OK);
    CHECK_EQ(count, 2);
    CHECK(gpu_watch_attach(watch, &loop, &handlers, NULL, &err) == STATUS_OK);
    gpu_watch_ask(watch, 0, 1, GPU_BYTES_UNKNOWN);
    usleep(200000); /* the loop is busy elsewhere, while the thread reads events */
    for (uint32_t i = 0; i < 600 && number_count < BURST; i++) {
        uv_timer_start(&timer, on_timeout, 100, 0);
        uv_run(&loop, UV_RUN_DEFAULT);
    }
    CHECK_EQ(number_count, BURST);
    for (uint32_t i = 0; i < BURST; i++)
        CHECK_EQ(numbers[i], i + 1);
    gpu_watch_detach(watch);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&loop) == 0);
    CHECK(gpu_watch_close(&watch, 60 * SECOND_US));
    CHECK(unlink(path) == 0);
}

static void write_lines(const char *path, const char *lines)
{
    char beside[64];
    FILE *file;

    (void)snprintf(beside, sizeof beside, "%s.new", path);
    file = fopen(beside, "w");
    CHECK(file != NULL);
    (void)fputs(lines, file);
    CHECK(fclose(file) == 0 && rename(beside, path) == 0);
}

TEST(gauges_are_read_and_stay_when_the_driver_hangs)
{
    char path[] = "/tmp/ddp-gauges-XXXXXX";
    struct gpu_gauges gauges[3] = {0};
    struct gpu_watch *watch = NULL;
    struct err err;
    uint32_t count = 0;
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    write_lines(path, "gpus 3\nmemory 0 2048\ngauges 0 87 64 412500 700000\nerror 2 15\n");
    CHECK(setenv("STAND_IN_NVML", path, 1) == 0);
    CHECK(gpu_watch_new(&watch, &err) == STATUS_OK);
    CHECK(gpu_watch_count(watch, 60 * SECOND_US, &count, &err) == STATUS_OK);
    gpu_watch_gauges(watch, 3, 5 * SECOND_US, SECOND_US, 60 * SECOND_US, gauges);
    CHECK_EQ(gauges[0].read_us, 5 * SECOND_US);
    CHECK_STR(gauges[0].name, "Stand-in GPU");
    CHECK_STR(gauges[0].uuid, "GPU-00000000-0000-0000-0000-000000000000");
    CHECK_EQ(gauges[0].utilization_percent, 87);
    CHECK_EQ(gauges[0].temperature_c, 64);
    CHECK_EQ(gauges[0].power_mw, 412500);
    CHECK_EQ(gauges[0].power_limit_mw, 700000);
    CHECK_EQ(gauges[0].memory_used_bytes, 2048LL << 20);
    CHECK_EQ(gauges[0].memory_total_bytes, 80LL << 30);
    CHECK_EQ(gauges[1].utilization_percent, GAUGE_UNKNOWN);
    CHECK_EQ(gauges[1].power_mw, GAUGE_UNKNOWN);
    CHECK_EQ(gauges[2].read_us, 0);
    CHECK_STR(gauges[2].error, "GPU is lost");
    /* The gauges are younger than the requested age, so they are not read again. */
    write_lines(path, "gpus 3\ngauges 0 10 30 100000 700000\n");
    gpu_watch_gauges(watch, 1, 6 * SECOND_US, SECOND_US, 60 * SECOND_US, gauges);
    CHECK_EQ(gauges[0].utilization_percent, 87);
    gpu_watch_gauges(watch, 1, 7 * SECOND_US, SECOND_US, 60 * SECOND_US, gauges);
    CHECK_EQ(gauges[0].utilization_percent, 10);
    write_lines(path, "hang\ngpus 3\n");
    gpu_watch_gauges(watch, 1, 10 * SECOND_US, SECOND_US, SECOND_US / 10, gauges);
    CHECK_EQ(gauges[0].read_us, 7 * SECOND_US);
    CHECK_EQ(gauges[0].utilization_percent, 10);
    CHECK_STR(gauges[0].error, "the driver does not answer");
    write_lines(path, "gpus 3\ngauges 0 11 30 100000 700000\n");
    gpu_watch_gauges(watch, 1, 20 * SECOND_US, SECOND_US, 60 * SECOND_US, gauges);
    CHECK_EQ(gauges[0].utilization_percent, 11);
    CHECK_STR(gauges[0].error, "");
    gpu_watch_detach(watch);
    CHECK(gpu_watch_close(&watch, 60 * SECOND_US));
    CHECK(unlink(path) == 0);
}

TEST_MAIN
