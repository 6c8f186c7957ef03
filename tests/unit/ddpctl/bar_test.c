/* The progress bar: it shows as much as fits, and the remaining time only if that is known. */
#include <stdio.h>
#include <string.h>

#include "ddpctl/bar.h"
#include "tests/lib/test.h"

#define SECOND_US 1000000u

static struct bar bar;
static char text[512];

static struct part_job job_at(uint64_t step)
{
    return (struct part_job){.state = JOB_RUNNING,
                             .generation = 1,
                             .nodes = 1,
                             .nproc_per_node = 2,
                             .ranks_running = 2,
                             .epoch = 3,
                             .epochs = 10,
                             .step = step,
                             .steps = 1000,
                             .loss = 0.43215,
                             .samples_per_s = 5120};
}

static const char *step(const struct bar_event *event)
{
    struct buf line = {0};

    bar_step(&bar, event, &line);
    buf_add(&line, "", 1);
    CHECK(!line.failed);
    (void)snprintf(text, sizeof text, "%s", line.bytes);
    buf_free(&line);
    return text;
}

static const char *show(const struct part_job *job, uint64_t seconds, uint32_t columns)
{
    return step(&(struct bar_event){.type = job != NULL ? BAR_JOB : BAR_TICK,
                                    .now_us = 100 * SECOND_US + seconds * SECOND_US,
                                    .columns = columns,
                                    .job = job});
}

static const char *at(uint64_t steps, uint64_t seconds)
{
    struct part_job job = job_at(steps);

    return show(&job, seconds, 120);
}

TEST(a_wide_terminal_shows_everything)
{
    bar = (struct bar){0};
    CHECK_STR(at(0, 0),
              "[>                             ]    0%  epoch 3/10  step 0/1k  loss 0.4321  "
              "5.1k/s  ETA -");
    (void)at(300, 10);
    CHECK_STR(at(340, 14),
              "[==========>                   ]   34%  epoch 3/10  step 340/1k  loss 0.4321  "
              "5.1k/s  ETA 1m06s");
}

TEST(the_time_left_follows_recent_steps)
{
    bar = (struct bar){0};
    CHECK(strstr(at(1, 0), "ETA -") != NULL); /* one step is not enough */
    CHECK(strstr(at(2, 1), "ETA -") != NULL); /* nor is a second of training */
    CHECK(strstr(at(3, 2), "ETA 16m") != NULL);
    for (uint64_t i = 0; i < 200; i++) /* ten times as fast: the first steps are forgotten */
        (void)at(4 + i, 3 + i / 10);
    (void)at(210, 200);
    CHECK(strstr(at(300, 209), "ETA 1m10s") != NULL);
    CHECK(strstr(show(NULL, 214, 120), "ETA 1m05s") != NULL); /* it counts down between reports */
    CHECK(strstr(show(NULL, 280, 120), "ETA -") != NULL);     /* and disappears without reports */
}

TEST(a_restart_begins_a_new_estimate)
{
    struct part_job job = job_at(150);

    bar = (struct bar){0};
    (void)at(100, 0);
    CHECK(strstr(at(200, 10), "ETA 1m20s") != NULL);
    job.generation = 2;
    job.restarts = 1;
    job.state = JOB_RESTARTING;
    CHECK(strstr(show(&job, 12, 120), "step 150/1k") != NULL);
    CHECK(strstr(text, "ETA") == NULL);
    CHECK(strstr(text, "restarting  1 restart") != NULL);
    job.state = JOB_RUNNING;
    job.restarts = 2;
    job.ranks_running = 1;
    CHECK(strstr(show(&job, 13, 120), "ETA -  2 restarts  1/2 ranks") != NULL);
    job.step = 160;
    CHECK(strstr(show(&job, 18, 120), "ETA 7m  2 restarts") != NULL);
}

TEST(no_line_is_wider_than_its_terminal)
{
    struct part_job job = job_at(999);

    job.restarts = 12;
    job.ranks_running = 1;
    job.loss = -1e300;
    for (uint32_t columns = 1; columns <= 200; columns++) {
        bar = (struct bar){0};
        CHECK(strlen(show(&job, 0, columns)) < columns);
        for (const char *c = text; *c; c++)
            CHECK(*c >= ' ' && *c <= '~');
        CHECK(columns < BAR_COLUMNS_MIN ? text[0] == '\0' : strstr(text, "99%") != NULL);
    }
    bar = (struct bar){0};
    CHECK_STR(show(&job, 0, 20), " 99%  5.1k/s  ETA -");
    CHECK_STR(show(&job, 0, 19), " 99%  ETA -");
}

TEST(unknown_things_are_not_shown)
{
    struct part_job job = job_at(120);

    bar = (struct bar){0};
    job.steps = job.epochs = job.epoch = 0;
    job.samples_per_s = 0;
    CHECK_STR(show(&job, 0, 80), "step 120  loss 0.4321");
    job.steps = 100; /* more steps than announced */
    CHECK(strstr(show(&job, 1, 80), "100%") != NULL);
    job.ended = true;
    CHECK_STR(show(&job, 2, 80), "");
    CHECK_STR(show(NULL, 3, 80), "");
    bar = (struct bar){0};
    job = (struct part_job){.state = JOB_STARTING, .nodes = 1, .nproc_per_node = 1};
    CHECK_STR(show(&job, 4, 80), ""); /* before its first progress */
}

TEST_MAIN
