/* The folders of --state-dir and --log-dir of a run with daemons of its own. */
#include "ddpctl/private_daemons.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TEST(what_is_missing_is_made)
{
    char wanted[512], whole[PATH_MAX], tiny[8], expected[512];
    struct stat info;
    struct err err;

    (void)snprintf(wanted, sizeof wanted, "%s/a//./b/", test_dir());
    (void)snprintf(expected, sizeof expected, "%s/a/b", test_dir());
    CHECK_EQ(private_folder(wanted, "--state-dir", whole, sizeof whole, &err), STATUS_OK);
    CHECK_STR(whole, expected);
    CHECK(stat(whole, &info) == 0 && S_ISDIR(info.st_mode));
    CHECK_EQ(private_folder(whole, "--state-dir", whole, sizeof whole, &err), STATUS_OK);
    CHECK_STR(whole, expected);
    CHECK_EQ(private_folder(whole, "--state-dir", tiny, sizeof tiny, &err), STATUS_TOO_BIG);
}

TEST(links_are_followed_only_if_they_are_ours)
{
    char link[512], below[600], target[512], whole[PATH_MAX];
    struct err err;

    (void)snprintf(link, sizeof link, "%s/link", test_dir());
    (void)snprintf(below, sizeof below, "%s/logs", link);
    (void)snprintf(target, sizeof target, "%s/target", test_dir());
    CHECK_EQ(mkdir(target, 0700), 0);
    CHECK_EQ(symlink(target, link), 0);
    CHECK_EQ(private_folder(link, "--state-dir", whole, sizeof whole, &err), STATUS_OK);
    CHECK_STR(whole, target);
    if (geteuid() != 0)
        return; /* only root can make another user's link */
    CHECK_EQ(lchown(link, 65534, 65534), 0);
    CHECK_EQ(private_folder(link, "--state-dir", whole, sizeof whole, &err), STATUS_REFUSED);
    CHECK(strstr(err.text, "--state-dir: ") == err.text);
    CHECK(strstr(err.text, "symbolic link of user 65534: it is not followed") != NULL);
    CHECK_EQ(private_folder(below, "--log-dir", whole, sizeof whole, &err), STATUS_REFUSED);
    CHECK(rmdir(target) == 0); /* nothing was made in it */
}

TEST_MAIN
