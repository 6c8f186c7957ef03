/* The thread that writes checkpoints: it does not block the caller, and it passes on errors. */
#include "worker/checkpoint/writer.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/unit/worker/checkpoint/small_state.h"

static float weight[3] = {1, 2, 3};
static const struct safetensors_tensor tensor = {
    .name = "weight", .type = SAFETENSORS_F32, .dims = {3}, .dim_count = 1, .values = weight};

static void begin(struct checkpoint_writer *writer, uint32_t step)
{
    const struct checkpoint_state state = small_state(step);

    checkpoint_writer_begin(writer, &state, &tensor, 1);
}

static bool is_committed(uint32_t step)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s/step-%08u.json", test_dir(), step);
    return access(path, F_OK) == 0;
}

/* Whoever holds the folder's lock keeps the thread from its commit. */
static int hold_lock(void)
{
    char path[512];
    int fd;

    (void)snprintf(path, sizeof path, "%s/.lock", test_dir());
    fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_EQ(flock(fd, LOCK_EX), 0);
    return fd;
}

TEST(the_caller_does_not_wait)
{
    struct checkpoint_dir *dir = small_dir(1, 100);
    struct checkpoint_writer *writer;
    struct err err = {0};
    const int held = hold_lock();

    CHECK_EQ(checkpoint_writer_new(&writer, dir, &err), STATUS_OK);
    begin(writer, 1);
    CHECK(!checkpoint_writer_take(writer, false, &err));
    CHECK(!is_committed(1));
    CHECK_EQ(close(held), 0);
    CHECK(checkpoint_writer_take(writer, true, &err));
    CHECK_EQ(err.status, STATUS_OK);
    CHECK(is_committed(1));
    begin(writer, 2);
    checkpoint_writer_free(&writer); /* waits */
    CHECK(is_committed(2));
    checkpoint_dir_close(&dir);
}

TEST(what_went_wrong_is_handed_on)
{
    struct checkpoint_dir *dir = small_dir(1, 100), *newer;
    struct checkpoint_writer *writer;
    struct err err = {0};

    CHECK_EQ(checkpoint_writer_new(&writer, dir, &err), STATUS_OK);
    weight[1] = NAN;
    begin(writer, 1);
    CHECK(checkpoint_writer_take(writer, true, &err));
    CHECK_EQ(err.status, STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "weight has nan at element 1") != NULL);
    CHECK(!is_committed(1));
    weight[1] = 2;
    newer = small_dir(2, 100);
    begin(writer, 2);
    CHECK(checkpoint_writer_take(writer, true, &err));
    CHECK_EQ(err.status, STATUS_CONFLICT);
    CHECK(!is_committed(2));
    checkpoint_writer_free(&writer);
    checkpoint_dir_close(&dir);
    checkpoint_dir_close(&newer);
}

TEST_MAIN
