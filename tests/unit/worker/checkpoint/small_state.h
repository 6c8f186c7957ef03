/* A small checkpoint's state, and the folder for it. */
#ifndef TESTS_UNIT_WORKER_CHECKPOINT_SMALL_STATE_H
#define TESTS_UNIT_WORKER_CHECKPOINT_SMALL_STATE_H

#include "tests/lib/test.h"
#include "worker/checkpoint/checkpoint.h"

static inline struct checkpoint_state small_state(uint32_t step)
{
    return (struct checkpoint_state){.job_id = "7",
                                     .step = step,
                                     .arch = "convnet",
                                     .data = "digits",
                                     .image_count = 10,
                                     .world = 1,
                                     .batch = 1,
                                     .accumulation_steps = 1,
                                     .opt_level = "O0",
                                     .optimizer = "sgd",
                                     .loss_scale = 1.0F};
}

/* The test's own folder as that of job 7, which has come to `step`. */
static inline struct checkpoint_dir *small_dir(uint32_t generation, int64_t step)
{
    const struct checkpoint_options options = {
        .path = test_dir(), .job_id = "7", .generation = generation, .keep = 2, .step = step};
    struct checkpoint_dir *dir;
    struct err notice, err;

    if (checkpoint_dir_open(&dir, &options, &notice, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return dir;
}

#endif
