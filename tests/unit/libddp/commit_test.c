/* The fence and the commit: an older generation cannot write, and no commit is partial. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libddp/place.h"
#include "tests/lib/test.h"
#include "tests/unit/libddp/shim_end.h"

static struct ddp *open_as(uint64_t job_id, uint32_t generation)
{
    const struct ddp_place place = {
        .world = 1, .job_id = job_id, .generation = generation, .cluster = "c1"};
    struct ddp *ddp;

    CHECK_EQ(ddp_open_at(&ddp, &place, -1, NULL), STATUS_OK);
    return ddp;
}

static const char *in_folder(const char *name)
{
    static char path[1024];

    (void)snprintf(path, sizeof path, "%s/%s", test_dir(), name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    const int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd >= 0);
    CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
    CHECK_EQ(close(fd), 0);
}

static bool is_there(const char *name)
{
    return access(in_folder(name), F_OK) == 0;
}

TEST(a_commit_renames_and_tells)
{
    struct shim_end end;
    struct ddp *ddp = shim_end_open(&end);
    struct ddp_error error = {.text = ""};

    CHECK_EQ(ddp_commit(ddp, 1, NULL, NULL, &error), DDP_BAD_INPUT);
    CHECK(strstr(error.text, "ddp_fence") != NULL);
    CHECK_EQ(ddp_fence(ddp, test_dir(), &error), DDP_OK);
    CHECK_EQ(ddp_fence(ddp, test_dir(), &error), DDP_BAD_INPUT);
    CHECK_EQ(ddp_check_fence(ddp, &error), DDP_OK);
    write_file("new.tmp", "weights");
    CHECK_EQ(ddp_commit(ddp, 12, "new.tmp", "step-12.pt", &error), DDP_OK);
    CHECK(is_there("step-12.pt") && !is_there("new.tmp"));
    CHECK_EQ(shim_end_next(&end)->progress.checkpoint_step, 12);
    CHECK_EQ(mkdir(in_folder("folder.tmp"), 0700), 0);
    CHECK_EQ(ddp_commit(ddp, 13, "folder.tmp", "step-13", &error), DDP_OK);
    CHECK(is_there("step-13"));
    CHECK_EQ(shim_end_next(&end)->progress.checkpoint_step, 13);
    CHECK_EQ(ddp_commit(ddp, 14, "not-there", "step-14", &error), DDP_NOT_FOUND);
    CHECK(shim_end_is_quiet(&end));
    ddp_leave(&ddp);
    shim_end_close(&end);
}

TEST(names_stay_below_the_folder)
{
    static const char *const names[] = {"", "/tmp/x", "../x", "a/../../x", "a//x", "a/", ".", ".."};
    struct ddp *ddp = open_as(0, 1);

    CHECK_EQ(ddp_fence(ddp, test_dir(), NULL), DDP_OK);
    write_file("new.tmp", "weights");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        CHECK_EQ(ddp_commit(ddp, 1, "new.tmp", names[i], NULL), DDP_BAD_INPUT);
        CHECK_EQ(ddp_commit(ddp, 1, names[i], "x", NULL), DDP_BAD_INPUT);
    }
    CHECK_EQ(ddp_commit(ddp, 1, "new.tmp", NULL, NULL), DDP_BAD_INPUT);
    CHECK(is_there("new.tmp"));
    ddp_leave(&ddp);
}

TEST(an_older_generation_commits_nothing)
{
    struct ddp *old = open_as(7, 1), *new = open_as(7, 2), *late = open_as(7, 1);
    struct ddp_error error = {.text = ""};

    CHECK_EQ(ddp_fence(old, test_dir(), NULL), DDP_OK);
    CHECK_EQ(ddp_fence(new, test_dir(), NULL), DDP_OK);
    write_file("old.tmp", "old");
    write_file("new.tmp", "new");
    CHECK_EQ(ddp_commit(old, 5, "old.tmp", "step-5", &error), DDP_CONFLICT);
    CHECK(strstr(error.text, "generation 2 of job 7") != NULL);
    CHECK(is_there("old.tmp") && !is_there("step-5"));
    CHECK_EQ(ddp_check_fence(old, NULL), DDP_CONFLICT);
    /* nor can it take the folder back, whatever the order of the ranks */
    CHECK_EQ(ddp_fence(late, test_dir(), &error), DDP_CONFLICT);
    CHECK(strstr(error.text, "this is generation 1") != NULL);
    CHECK_EQ(ddp_commit(new, 5, "new.tmp", "step-5", &error), DDP_OK);
    ddp_leave(&old);
    ddp_leave(&late);
    CHECK_EQ(ddp_check_fence(new, NULL), DDP_OK);
    ddp_leave(&new);
}

TEST(a_lock_file_of_another_program_is_not_written)
{
    struct ddp *ddp = open_as(7, 1);
    struct ddp_error error = {.text = ""};
    char text[8] = "";
    int fd;

    write_file(".lock", "mine");
    CHECK_EQ(ddp_fence(ddp, test_dir(), &error), DDP_BAD_INPUT);
    CHECK(strstr(error.text, ".lock is not one of ours") != NULL);
    fd = open(in_folder(".lock"), O_RDONLY | O_CLOEXEC);
    CHECK_EQ(read(fd, text, sizeof text - 1), 4);
    CHECK_STR(text, "mine");
    CHECK_EQ(close(fd), 0);
    CHECK_EQ(unlink(in_folder(".lock")), 0);
    CHECK_EQ(ddp_fence(ddp, test_dir(), &error), DDP_OK);
    ddp_leave(&ddp);
}

TEST(another_job_waits_until_the_owner_has_gone)
{
    struct ddp *seven = open_as(7, 3), *eight = open_as(8, 1);
    struct ddp_error error = {.text = ""};

    CHECK_EQ(ddp_fence(seven, test_dir(), NULL), DDP_OK);
    CHECK_EQ(ddp_fence(eight, test_dir(), &error), DDP_BUSY);
    CHECK(strstr(error.text, "generation 3 of job 7") != NULL);
    ddp_leave(&seven);
    CHECK_EQ(ddp_fence(eight, test_dir(), &error), DDP_OK);
    ddp_leave(&eight);
}

TEST(folders_that_will_not_do_are_named)
{
    struct ddp *ddp = open_as(7, 1);
    struct ddp_error error = {.text = ""};
    char path[2000];

    CHECK_EQ(ddp_fence(ddp, in_folder("missing"), &error), DDP_IO);
    CHECK(strstr(error.text, "/missing") != NULL && error.code != 0);
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = '\0';
    CHECK_EQ(ddp_fence(ddp, path, &error), DDP_TOO_BIG);
    CHECK_EQ(ddp_fence(ddp, "", &error), DDP_TOO_BIG);
    ddp_leave(&ddp);
}

TEST_MAIN
