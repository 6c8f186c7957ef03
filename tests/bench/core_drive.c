#include "tests/bench/core_drive.h"

#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

/* Of this thread on a processor: other programs do not count. */
static double seconds(void)
{
    struct timespec at;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

double core_drive_step(struct core_drive *drive, struct rdzv_event event)
{
    double begin = seconds();

    event.now_us = drive->now_us;
    event.wall_ms = (int64_t)(drive->now_us / 1000);
    rdzv_step(drive->core, &event, &drive->actions);
    return seconds() - begin;
}

bool core_drive_init(struct core_drive *drive, uint32_t nodes_max, uint32_t jobs_max)
{
    const struct rdzv_options options = {.jobs_max = jobs_max,
                                         .nodes_max = nodes_max,
                                         .lease_us = 60000000,
                                         .beat_interval_us = 1000000,
                                         .suspect_us = 5000000,
                                         .lost_us = 15000000,
                                         .seed = 1,
                                         .cluster = "bench"};
    void *memory = mmap(NULL, rdzv_bytes(&options), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        return false;
    drive->core = rdzv_init(memory, &options);
    drive->now_us = 1000000000;
    (void)core_drive_step(drive,
                          (struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    return true;
}

double core_drive_hello(struct core_drive *drive, uint32_t node, uint32_t slots)
{
    char name[16];
    struct msg msg = {.type = MSG_TYPE_NODE_HELLO};

    (void)snprintf(name, sizeof name, "node%u", node);
    msg.node_hello = (struct msg_node_hello){.version = "1",
                                             .name = name,
                                             .boot_id = "b",
                                             .instance = node + 1,
                                             .address = "10.0.0.1",
                                             .slots = slots};
    return core_drive_step(
        drive, (struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = node + 1, .msg = &msg});
}

double core_drive_submit(struct core_drive *drive, uint32_t nodes, uint32_t nproc)
{
    static const char *const argv[] = {"x"};
    static uint32_t serial;
    char request_id[REQUEST_ID_CHARS + 1];
    struct msg msg = {.type = MSG_TYPE_SUBMIT};

    (void)snprintf(request_id, sizeof request_id, "%032u", ++serial);
    msg.submit = (struct msg_submit){.request_id = request_id,
                                     .name = "job",
                                     .nodes = nodes,
                                     .nproc_per_node = nproc,
                                     .cwd = "/",
                                     .after = "",
                                     .argv = {argv, 1}};
    return core_drive_step(
        drive,
        (struct rdzv_event){.type = RDZV_EVENT_SUBMIT, .client = 1, .msg = &msg, .user = "ann"});
}
