/* What ended processes have left in a folder for shared memory. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcherd/process/shm_folder.h"
#include "tests/lib/test.h"

static const char *folder;
static struct shm_seen seen;
static struct shm_left left;

static const char *path_of(const char *name)
{
    static char path[300];

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make(const char *name, size_t bytes)
{
    static const char zeros[65536];
    const int fd = open(path_of(name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && bytes <= sizeof zeros && write(fd, zeros, bytes) == (ssize_t)bytes);
    return fd;
}

static void leave(const char *name, size_t bytes)
{
    CHECK(close(make(name, bytes)) == 0);
}

static bool is_there(const char *name)
{
    return access(path_of(name), F_OK) == 0;
}

static const char *listed(bool removed)
{
    static char text[400];

    (void)shm_left_list(&left, removed, text, sizeof text);
    return text;
}

static void begin(void)
{
    folder = test_dir();
    leave("from-before", 1);
    shm_seen_read(folder, &seen);
    CHECK(seen.is_known);
}

TEST(what_was_made_since_and_is_not_in_use)
{
    begin();
    leave("small", 1000);
    leave("large", 65536);
    CHECK(mkdir(path_of("joblib_memmapping_folder_7"), 0700) == 0);
    CHECK(symlink("large", path_of("link")) == 0);
    const int open_fd = make("open", 10), mapped_fd = make("mapped", 10);
    void *map = mmap(NULL, 10, PROT_READ, MAP_SHARED, mapped_fd, 0);

    CHECK(map != MAP_FAILED && close(mapped_fd) == 0);
    shm_left_read(folder, &seen, geteuid(), &left);
    CHECK_STR(listed(true), "");
    CHECK_STR(listed(false), "large (64 KiB), small (4 KiB), joblib_memmapping_folder_7/");
    CHECK(munmap(map, 10) == 0 && close(open_fd) == 0);
    shm_left_read(folder, NULL, geteuid(), &left);
    CHECK_EQ(left.count, 6);
    CHECK(strstr(listed(false), " and 2 more") != NULL);
    shm_left_read(folder, NULL, geteuid() + 1, &left);
    CHECK_EQ(left.count, 0);
}

/* Not a data set that a script keeps for its next generation, and not a segment of a process of which nothing is known. */
TEST(only_what_is_proved_to_be_garbage_is_removed)
{
    static const pid_t ended[] = {4711, 4712};

    begin();
    leave("torch_4711_123_4", 10);
    leave("torch_4713_123_4", 10);
    leave("pym-4712-x8f", 10);
    leave("imagenet_4711_cache", 10);
    const int used_fd = make("torch_4712_99_1", 10);

    CHECK(mkdir(path_of("torch_4711_folder"), 0700) == 0);
    shm_left_read(folder, &seen, geteuid(), &left);
    leave("torch_4711_5_5", 10); /* it is not in the list */
    CHECK_EQ(shm_left_remove(folder, &left, geteuid(), ended, 2), 2);
    CHECK(!is_there("torch_4711_123_4") && !is_there("pym-4712-x8f"));
    CHECK(is_there("torch_4713_123_4") && is_there("imagenet_4711_cache") &&
          is_there("torch_4711_5_5"));
    CHECK(is_there("torch_4712_99_1") && is_there("torch_4711_folder") && is_there("from-before"));
    CHECK_STR(listed(true), "pym-4712-x8f (4 KiB), torch_4711_123_4 (4 KiB)");
    CHECK(close(used_fd) == 0);
}

TEST(what_is_another_file_by_now_stays)
{
    static const pid_t ended[] = {4711};
    char from[300];

    begin();
    leave("torch_4711_1_1", 10);
    leave("torch_4711_2_2", 10);
    shm_left_read(folder, &seen, geteuid(), &left);
    leave("other", 10);
    (void)snprintf(from, sizeof from, "%s", path_of("other"));
    CHECK(rename(from, path_of("torch_4711_1_1")) == 0);
    CHECK_EQ(shm_left_remove(folder, &left, geteuid(), ended, 1), 1);
    CHECK(is_there("torch_4711_1_1") && !is_there("torch_4711_2_2"));
}

TEST(the_maker_of_a_segment)
{
    CHECK_EQ(shm_maker("torch_4711_3829_0"), 4711);
    CHECK_EQ(shm_maker("__KMP_REGISTERED_LIB_88_1000"), 88);
    CHECK_EQ(shm_maker("sem.loky-12-abc"), 12);
    CHECK_EQ(shm_maker("torch_4711"), 0);
    CHECK_EQ(shm_maker("torch_-1_2"), 0);
    CHECK_EQ(shm_maker("torch_99999999999_2"), 0);
    CHECK_EQ(shm_maker("psm_1234_5"), 0);
}

TEST_MAIN
