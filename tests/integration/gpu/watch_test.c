/* gpu_watch on the stand-in for NVML: a burst of Xids, longer than its queue, loses none. */
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
    CHECK(gpu_watch_count(watch, 10 * SECOND_US, &count, &err) == STATUS_OK);
    CHECK_EQ(count, 2);
    CHECK(gpu_watch_attach(watch, &loop, &handlers, NULL, &err) == STATUS_OK);
    gpu_watch_ask(watch, 0, 1, GPU_BYTES_UNKNOWN);
    usleep(200000); /* the loop is busy elsewhere, while the thread reads events */
    for (uint32_t i = 0; i < 100 && number_count < BURST; i++) {
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
    CHECK(gpu_watch_close(&watch, 10 * SECOND_US));
    CHECK(unlink(path) == 0);
}

TEST_MAIN
