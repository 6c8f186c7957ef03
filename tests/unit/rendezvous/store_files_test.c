/* Files in the places of the store's that are not the store's. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/store/store.h"
#include "tests/lib/test.h"

/* A link, even to a database that is not there now, is neither followed nor replaced. */
TEST(what_is_not_a_file_of_ours_is_left_alone)
{
    static const char *const names[] = {"state.db", "state.db-wal", "state.db-shm",
                                        "state.db-journal"};
    char other[512], path[512];
    struct stat info;
    struct err err;

    (void)snprintf(other, sizeof other, "%s/other", test_dir());
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct store *store = NULL;
        int fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

        CHECK(fd >= 0 && write(fd, "precious", 8) == 8 && fchmod(fd, 0644) == 0);
        (void)close(fd);
        (void)snprintf(path, sizeof path, "%s/%s", test_dir(), names[i]);
        CHECK_EQ(symlink(other, path), 0);
        CHECK_EQ(store_open(&store, test_dir(), true, &err), STATUS_REFUSED);
        CHECK(strstr(err.text, "is a symbolic link: it is not followed") != NULL);
        CHECK(stat(path, &info) == 0 && (info.st_mode & 07777) == 0644 && info.st_size == 8);
        CHECK_EQ(unlink(other), 0); /* as when its disk is not mounted */
        CHECK_EQ(store_open(&store, test_dir(), true, &err), STATUS_REFUSED);
        CHECK(lstat(path, &info) == 0 && S_ISLNK(info.st_mode));
        CHECK_EQ(unlink(path), 0);
        CHECK_EQ(mkfifo(path, 0600), 0);
        CHECK_EQ(store_open(&store, test_dir(), true, &err), STATUS_REFUSED);
        CHECK(strstr(err.text, "is no plain file") != NULL);
        CHECK_EQ(unlink(path), 0);
    }
}

TEST_MAIN
