/* The folder is the user's: no file that is not known to be ours is removed, replaced or written through. It stays, or
 * is in earlier-<n>, and a log line names it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "tests/lib/test.h"
#include "tests/unit/worker/checkpoint/small_state.h"

static char lines[8192];

static void keep_line(const char *bytes, size_t byte_count)
{
    const size_t length = strlen(lines);

    (void)snprintf(lines + length, sizeof lines - length, "%.*s", (int)byte_count, bytes);
}

static const char *path_of(const char *name)
{
    static char paths[2][512];
    static unsigned turn;
    char *path = paths[turn++ % 2];

    (void)snprintf(path, sizeof paths[0], "%s/%s", test_dir(), name);
    return path;
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "w");

    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static bool has(const char *name, const char *text)
{
    char found[256] = "";
    FILE *file = fopen(path_of(name), "r");

    if (file == NULL)
        return false;
    (void)!fread(found, 1, sizeof found - 1, file);
    (void)fclose(file);
    return strcmp(found, text) == 0;
}

static bool is_there(const char *name)
{
    struct stat found;

    return lstat(path_of(name), &found) == 0;
}

static bool links_to(const char *name, const char *expected)
{
    char target[128] = "";

    return readlink(path_of(name), target, sizeof target - 1) > 0 && strcmp(target, expected) == 0;
}

static enum status try_save(struct checkpoint_dir *dir, uint32_t step, struct err *err)
{
    const float weight[1] = {(float)step};
    const struct safetensors_tensor tensor = {
        .name = "weight", .type = SAFETENSORS_F32, .dims = {1}, .dim_count = 1, .values = weight};
    const struct checkpoint_state state = small_state(step);

    return checkpoint_save(dir, &state, &tensor, 1, err);
}

static void save(struct checkpoint_dir *dir, uint32_t step)
{
    struct err err;

    if (try_save(dir, step, &err) != STATUS_OK)
        FAIL("%s", err.text);
}

static void mark(struct checkpoint_dir *dir, uint32_t step)
{
    const struct checkpoint_best best = {.step = step, .metric = "val_acc1", .value = step};

    CHECK_EQ(checkpoint_best_mark(dir, &best, NULL), STATUS_OK);
}

static bool opens(uint32_t step)
{
    struct checkpoint checkpoint;

    if (checkpoint_open_step(&checkpoint, test_dir(), step, NULL) != STATUS_OK)
        return false;
    checkpoint_close(&checkpoint);
    return true;
}

static void check_aside(const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char aside[128];

        (void)snprintf(aside, sizeof aside, "earlier-1/%s", names[i]);
        if (!has(aside, names[i]) || strstr(lines, names[i]) == NULL)
            FAIL("%s is lost, or no line names it: %s", names[i], lines);
    }
}

TEST(files_of_the_user_are_moved_aside_at_the_start)
{
    static const char *const names[] = {"step-00000001.safetensors",
                                        "step-99999999.safetensors",
                                        "step-00000009.safetensors.tmp",
                                        "step-00000008.json.tmp",
                                        "latest.json.tmp",
                                        "best.safetensors.tmp",
                                        "step-00000007.json",
                                        "step-00000007.safetensors",
                                        "step-00000003.safetensors",
                                        "step-00000006.safetensors.0123456789abcdef.tmp"};
    enum { COUNT = sizeof names / sizeof names[0] };
    struct checkpoint_dir *dir;

    lines[0] = '\0';
    for (size_t i = 0; i < COUNT; i++)
        put(names[i], names[i]);
    put("notes.txt", "notes");
    put("step-notes.txt", "notes");
    log_use(keep_line);
    dir = small_dir(1, -1);
    save(dir, 1);
    log_use(NULL);
    check_aside(names, COUNT);
    CHECK(opens(1) && has("notes.txt", "notes") && has("step-notes.txt", "notes"));
    checkpoint_dir_close(&dir);
}

TEST(links_of_the_user_are_moved_aside_and_not_followed)
{
    static const char *const names[] = {
        "step-00000001.safetensors", "step-00000001.json", "latest.json", "best.json",
        "latest.safetensors",        "best.safetensors"};
    struct checkpoint_dir *dir = small_dir(1, -1);

    lines[0] = '\0';
    put("victim", "victim");
    for (size_t i = 0; i < 6; i++) /* the hard one is at step-00000001.json and best.json */
        CHECK_EQ(i % 2 == 1 && i < 4 ? link(path_of("victim"), path_of(names[i]))
                                     : symlink("victim", path_of(names[i])),
                 0);
    log_use(keep_line);
    save(dir, 1);
    mark(dir, 1);
    log_use(NULL);
    CHECK(has("victim", "victim") && opens(1));
    CHECK(links_to("earlier-1/step-00000001.safetensors", "victim"));
    CHECK(links_to("earlier-1/latest.json", "victim"));
    CHECK(links_to("earlier-1/latest.safetensors", "victim"));
    CHECK(links_to("earlier-1/best.safetensors", "victim"));
    CHECK(has("earlier-1/step-00000001.json", "victim") && has("earlier-1/best.json", "victim"));
    for (size_t i = 0; i < 6; i++)
        CHECK(strstr(lines, names[i]) != NULL);
    CHECK(links_to("latest.safetensors", "step-00000001.safetensors"));
    CHECK(links_to("best.safetensors", "step-00000001.safetensors"));
    checkpoint_dir_close(&dir);
}

/* While a job runs. The second file of a name goes to another folder, not over the first. */
TEST(plain_files_of_the_user_are_moved_aside_when_they_are_in_the_way)
{
    static const char *const names[] = {
        "step-00000001.safetensors", "step-00000001.json", "latest.json",
        "latest.safetensors",        "best.json",          "best.safetensors"};
    struct checkpoint_dir *dir = small_dir(1, -1);

    for (size_t i = 0; i < 6; i++)
        put(names[i], names[i]);
    lines[0] = '\0';
    log_use(keep_line);
    save(dir, 1);
    mark(dir, 1);
    log_use(NULL);
    check_aside(names, 6);
    CHECK_EQ(unlink(path_of("latest.safetensors")), 0);
    put("latest.safetensors", "again");
    save(dir, 2);
    CHECK(has("earlier-1/latest.safetensors", "latest.safetensors"));
    CHECK(has("earlier-2/latest.safetensors", "again"));
    CHECK(links_to("latest.safetensors", "step-00000002.safetensors"));
    checkpoint_dir_close(&dir);
}

/* Else the user's would take the place of the newest, and ours would be removed. */
TEST(files_of_the_user_do_not_count_and_are_not_removed_with_the_old_ones)
{
    struct checkpoint_dir *dir = small_dir(1, -1);

    save(dir, 1);
    CHECK_EQ(rename(path_of("step-00000001.safetensors"), path_of("elsewhere")), 0);
    CHECK_EQ(symlink("elsewhere", path_of("step-00000001.safetensors")), 0);
    put("step-00000002.json", "mine");
    put("step-99999998.json", "mine");
    put("step-99999999.json", "mine");
    for (uint32_t step = 3; step <= 6; step++)
        save(dir, step);
    CHECK(opens(5) && opens(6) && !is_there("step-00000004.json"));
    CHECK(has("step-00000002.json", "mine") && has("step-99999999.json", "mine"));
    CHECK(opens(1)); /* and a start does not take it away from a resume */
    checkpoint_dir_close(&dir);
    dir = small_dir(2, 6);
    CHECK(opens(1) && opens(6) && has("earlier-1/step-99999999.json", "mine"));
    checkpoint_dir_close(&dir);
}

/* What a kill leaves: temporary files cut anywhere, a link, and tensors without their .json. */
TEST(our_own_leftovers_are_removed)
{
    static const char id[] = "0123456789abcdef";
    struct checkpoint_dir *dir = small_dir(1, -1);
    char name[96];

    save(dir, 1);
    save(dir, 2);
    checkpoint_dir_close(&dir);
    for (off_t size = 0; size <= 80; size += 4) {
        (void)snprintf(name, sizeof name, "step-%08d.safetensors.%s.tmp", 100 + (int)size, id);
        CHECK_EQ(link(path_of("step-00000002.safetensors"), path_of("whole")), 0);
        CHECK_EQ(rename(path_of("whole"), path_of(name)), 0);
        CHECK_EQ(unlink(path_of("step-00000002.safetensors")), 0);
        CHECK_EQ(truncate(path_of(name), 80 - size), 0);
        CHECK_EQ(link(path_of(name), path_of("step-00000002.safetensors")), 0);
    }
    put("step-00000100.json.0123456789abcdef.tmp", "{\n\t\"sche");
    put("best.json.0123456789abcdef.tmp", "");
    CHECK_EQ(
        symlink("step-00000002.safetensors", path_of("latest.safetensors.0123456789abcdef.tmp")),
        0);
    CHECK_EQ(rename(path_of("step-00000001.safetensors"), path_of("step-00000009.safetensors")), 0);
    dir = small_dir(2, 2);
    for (int size = 0; size <= 80; size += 4) {
        (void)snprintf(name, sizeof name, "step-%08d.safetensors.%s.tmp", 100 + size, id);
        CHECK(!is_there(name));
    }
    CHECK(!is_there("step-00000100.json.0123456789abcdef.tmp"));
    CHECK(!is_there("best.json.0123456789abcdef.tmp"));
    CHECK(!is_there("latest.safetensors.0123456789abcdef.tmp"));
    CHECK(!is_there("step-00000009.safetensors") && !is_there("earlier-1"));
    checkpoint_dir_close(&dir);
}

/* An earlier version did not write the name of the writer. Its size is in the .json. */
TEST(tensors_of_an_earlier_version_are_ours_by_their_state)
{
    static const char ours[] = "\"writer\":\"ddp-worker\"", spaces[] = "\"writer\":\"an_editor_\"";
    struct checkpoint_dir *dir = small_dir(1, -1);
    char head[64] = "";
    int fd;

    save(dir, 1);
    save(dir, 2);
    fd = open(path_of("step-00000001.safetensors"), O_RDWR);
    CHECK_EQ(pread(fd, head, sizeof head - 1, 8), sizeof head - 1);
    CHECK(strstr(head, ours) != NULL);
    CHECK_EQ(pwrite(fd, spaces, strlen(spaces), 8 + (strstr(head, ours) - head)), strlen(spaces));
    CHECK_EQ(close(fd), 0);
    save(dir, 3);
    CHECK(!is_there("step-00000001.json") && !is_there("step-00000001.safetensors"));
    checkpoint_dir_close(&dir);
}

/* ".node-version" is a file of other programs. */
TEST(only_tokens_of_ours_are_removed)
{
    static const char *const names[] = {".node-version", ".node-0123456789abcdef-1",
                                        ".node-0123456789abcdef-1x", ".node-0123456789abcdef-"};
    const time_t old = time(NULL) - 3700;
    const struct timespec times[2] = {{.tv_sec = old}, {.tv_sec = old}};
    struct checkpoint_dir *dir;

    for (size_t i = 0; i < 4; i++) {
        put(names[i], i == 1 ? "mine" : "");
        CHECK_EQ(utimensat(AT_FDCWD, path_of(names[i]), times, 0), 0);
    }
    dir = small_dir(1, -1);
    for (size_t i = 0; i < 4; i++)
        CHECK(is_there(names[i]));
    checkpoint_dir_close(&dir);
}

/* A folder over which another is mounted, another user's file in a folder with a sticky bit: here,
 * no folder can be made to move it to. */
TEST(what_cannot_be_moved_is_an_error)
{
    struct checkpoint_dir *dir = small_dir(1, -1);
    struct err err = {.text = ""};
    char name[32];

    for (int i = 1; i <= 1000; i++) {
        (void)snprintf(name, sizeof name, "earlier-%d", i);
        put(name, "mine");
    }
    put("step-00000001.safetensors", "mine");
    CHECK_EQ(try_save(dir, 1, &err), STATUS_IO);
    CHECK(strstr(err.text, "cannot make a folder") != NULL);
    CHECK(has("step-00000001.safetensors", "mine") && has("earlier-1", "mine"));
    checkpoint_dir_close(&dir);
}

/* Its place says who may write here, so it is not moved, either. */
TEST(a_lock_file_of_another_program_is_left_alone)
{
    const struct checkpoint_options options = {
        .path = test_dir(), .job_id = "7", .generation = 1, .keep = 2, .step = -1};
    struct checkpoint_dir *dir;
    struct err notice, err = {.text = ""};

    put(".lock", "mine");
    put("step-00000001.safetensors", "mine");
    CHECK_EQ(checkpoint_dir_open(&dir, &options, &notice, &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, ".lock is not one of ours") != NULL);
    CHECK(has(".lock", "mine") && has("step-00000001.safetensors", "mine"));
    put(".lock", "");
    dir = small_dir(1, -1);
    checkpoint_dir_close(&dir);
    put(".lock", "generation 1 of job 3 (0123456789abcdef)\njob 3 of x\nprocess 1 on y\n");
    put(".lock-0123456789abcdef", "mine"); /* one of ours is empty */
    dir = small_dir(1, -1);
    CHECK(has(".lock-0123456789abcdef", "mine"));
    checkpoint_dir_close(&dir);
}

static struct checkpoint_dir *open_for(const char *folder, const char *job_id, uint32_t generation)
{
    const struct checkpoint_options options = {.path = folder,
                                               .job_id = job_id,
                                               .cluster = "c",
                                               .generation = generation,
                                               .keep = 2,
                                               .step = -1};
    struct checkpoint_dir *dir = NULL;
    struct err notice, err;

    if (checkpoint_dir_open(&dir, &options, &notice, &err) != STATUS_OK)
        FAIL("%s: %s", folder, err.text);
    return dir;
}

/* "cp -al": both names are of one file, with the first folder's last owner in it. */
TEST(a_copy_with_hard_links_gets_a_lock_file_of_its_own)
{
    char copy[512];
    struct checkpoint_dir *dir = open_for(test_dir(), "2", 1), *other, *later;
    struct err err;

    save(dir, 1);
    checkpoint_dir_close(&dir);
    (void)snprintf(copy, sizeof copy, "%s", path_of("branch"));
    CHECK(mkdir(copy, 0700) == 0 && link(path_of(".lock"), path_of("branch/.lock")) == 0);
    dir = open_for(test_dir(), "2", 2);
    other = open_for(copy, "3", 1);
    save(dir, 2);
    save(other, 2);
    save(dir, 3);
    save(other, 3);
    CHECK(!is_there("branch/.lock.new") && !is_there(".lock.new"));

    /* shared while a generation has it: the next one is told apart from it, and this one is fenced */
    CHECK(link(path_of(".lock"), path_of("another")) == 0);
    later = open_for(test_dir(), "2", 3);
    CHECK_EQ(try_save(dir, 4, &err), STATUS_CONFLICT);
    save(later, 4);
    save(other, 4);
    checkpoint_dir_close(&dir);
    checkpoint_dir_close(&other);
    checkpoint_dir_close(&later);
}

TEST_MAIN
