/* Which account a job runs as, and what is checked before it starts. The test uses accounts of this
 * machine: its own, root, and nobody. */
#include "launcherd/process/account.h"
#include "launcherd/shim/preflight.h"
#include "tests/lib/test.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <nss.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct account_policy strict = {.node = "b"};
static const struct account_policy open_to_root = {.node = "b", .allow_root = true};
static struct err err;

static struct account some(uid_t uid, const char *name)
{
    struct account account = {.uid = uid};
    (void)snprintf(account.name, sizeof account.name, "%s", name);
    return account;
}

static enum status choose(const struct account_policy *policy, uid_t own_uid, const char *own_name,
                          const char *user, bool *as_self)
{
    const struct account own = some(own_uid, own_name);
    struct account account;
    enum status status = account_choose(policy, &own, user, &account, as_self, &err);
    account_free(&account);
    return status;
}

TEST(an_ordinary_launcherd_runs_only_its_own_user)
{
    bool as_self = false;
    CHECK_EQ(choose(&strict, 4242, "bob", "alice", &as_self), STATUS_REFUSED);
    CHECK_STR(err.text,
              "launcherd on b runs as bob and cannot start jobs of alice: run it as root, "
              "or submit as bob");
    CHECK_EQ(choose(&strict, 4242, "bob", "root", &as_self), STATUS_REFUSED);
    CHECK_EQ(choose(&strict, 4242, "first@corp.example", "uid4243", &as_self), STATUS_REFUSED);
    CHECK_EQ(choose(&strict, 4242, "first@corp.example", "uid4242", &as_self), STATUS_OK);
    CHECK(as_self);
    as_self = false;
    CHECK_EQ(choose(&open_to_root, 0, "root", "uid0", &as_self), STATUS_NOT_FOUND);
    struct account own;
    CHECK_EQ(account_own(&own, &err), STATUS_OK);
    if (own.uid != 0)
        CHECK_EQ(choose(&strict, own.uid, own.name, own.name, &as_self), STATUS_OK);
    CHECK(own.uid == 0 || as_self);
    account_free(&own);
}

TEST(root_runs_everybody_but_root_and_the_system)
{
    bool as_self = true;
    CHECK_EQ(choose(&strict, 0, "root", "root", &as_self), STATUS_REFUSED);
    CHECK_STR(err.text, "node b runs no jobs of root: submit as another user, or start its "
                        "launcherd with --allow-root");
    CHECK_EQ(choose(&open_to_root, 0, "root", "root", &as_self), STATUS_OK);
    CHECK(as_self);
    CHECK_EQ(choose(&strict, 0, "root", "no-such-account", &as_self), STATUS_NOT_FOUND);
    CHECK_STR(err.text, "node b has no account no-such-account, which submitted the job: add it "
                        "there, or submit as a user that every node has");
    CHECK_EQ(choose(&strict, 0, "root", "", &as_self), STATUS_NOT_FOUND);
    CHECK_EQ(choose(&strict, 0, "root", "0", &as_self), STATUS_NOT_FOUND); /* no numbers */
    const struct passwd *nobody = getpwnam("nobody");
    if (nobody != NULL && nobody->pw_uid >= ACCOUNT_UID_MIN) {
        CHECK_EQ(choose(&strict, 0, "root", "nobody", &as_self), STATUS_OK);
        CHECK(!as_self);
    }
    const struct passwd *daemon = getpwnam("daemon");
    if (daemon != NULL && daemon->pw_uid < ACCOUNT_UID_MIN) {
        CHECK_EQ(choose(&strict, 0, "root", "daemon", &as_self), STATUS_REFUSED);
        CHECK(strstr(err.text, "daemon, an account of the system") != NULL);
        CHECK_EQ(choose(&open_to_root, 0, "root", "daemon", &as_self), STATUS_OK);
    }
}

static int ask_a_silent_service(void)
{
    struct account account;
    bool as_self;

    if (__nss_configure_lookup("passwd", "files silent") != 0)
        return 1;
    if (choose(&strict, 0, "root", "no-such-account", &as_self) != STATUS_SYSTEM)
        return 2;
    if (strstr(err.text, "node b: the user database does not answer") == NULL)
        return 3;
    if (account_find(&account, "nobody", &err) != STATUS_OK) /* in the file */
        return 4;
    account_free(&account);
    return account_own(&account, &err) == STATUS_OK ? 0 : 5;
}

static int in_child(int (*body)(void));

/* The account may be in the part that does not answer. */
TEST(a_silent_user_database_is_no_answer)
{
    CHECK_EQ(in_child(ask_a_silent_service), 0);
}

static bool groups_fail;

/* In place of glibc's. */
int getgrouplist(const char *user, gid_t group, gid_t *groups, int *count)
{
    int (*real)(const char *, gid_t, gid_t *, int *);

    if (groups_fail) {
        errno = ENOMEM;
        return -1;
    }
    *(void **)&real = dlsym(RTLD_NEXT, "getgrouplist");
    return real != NULL ? real(user, group, groups, count) : -1;
}

/* The groups of launcherd's own account are not needed for a job of another. */
TEST(groups_that_cannot_be_read_are_those_of_the_jobs_user)
{
    struct account own, account;
    enum status own_status, status;
    bool as_self;

    if (geteuid() != 0)
        SKIP("needs root");
    groups_fail = true;
    own_status = account_own(&own, &err);
    CHECK_EQ(own_status, STATUS_OK);
    status = account_choose(&open_to_root, &own, "nobody", &account, &as_self, &err);
    groups_fail = false;
    account_free(&own);
    CHECK_EQ(status, STATUS_SYSTEM);
    CHECK_STR(err.text, "node b: the groups of nobody cannot be read");
}

/* As in a container: root without a name in the user database. */
TEST(a_user_without_a_name_is_itself)
{
    struct account account;
    CHECK_EQ(account_own(&account, &err), STATUS_OK);
    CHECK_EQ(account.uid, geteuid());
    CHECK(account.name[0] != '\0' && account.home[0] == '/' && account.shell[0] == '/');
    account_free(&account);
}

/* Runs `body` in a child process, since it cannot change back to the old user. */
static int in_child(int (*body)(void))
{
    int how = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(body());
    CHECK_EQ(waitpid(pid, &how, 0), pid);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 255;
}

static int become_nobody(void)
{
    struct account account;
    uid_t real, effective, saved;
    if (account_find(&account, "nobody", &err) != STATUS_OK || !account_become(&account))
        return 1;
    if (getresuid(&real, &effective, &saved) != 0 || real != account.uid ||
        effective != account.uid || saved != account.uid)
        return 2;
    if (getgroups(0, NULL) != (int)account.group_count || getegid() != account.gid)
        return 3;
    return setuid(0) == 0 || setresuid((uid_t)-1, 0, (uid_t)-1) == 0 || setgid(0) == 0 ? 4 : 0;
}

TEST(root_does_not_come_back)
{
    if (geteuid() != 0) {
        (void)printf("skipped: only root can change its user\n");
        return;
    }
    CHECK_EQ(in_child(become_nobody), 0);
}

static struct preflight_result result;
static char here[64] = "/tmp/ddp-preflight-XXXXXX";

static const char *check_as(const struct account_policy *policy, const char *user, const char *cwd,
                            const char *program)
{
    struct account own;
    const char *argv[] = {program};
    struct msg_pair path = {.name = "PATH", .value = here};
    struct msg_start start = {.cluster = "c",
                              .job_id = 1,
                              .generation = 1,
                              .name = "j",
                              .local_count = 1,
                              .world = 1,
                              .node_count = 1,
                              .slot_mask = 1,
                              .cwd = cwd,
                              .argv = {.items = argv, .count = 1},
                              .env = {.items = &path, .count = 1}};
    struct worker_env_facts env = {.start = &start,
                                   .node_name = "b",
                                   .node_address = "::1",
                                   .token = "t",
                                   .error_dir = "/e",
                                   .shim_fd = 3};
    CHECK_EQ(account_own(&own, &err), STATUS_OK);
    start.user = user != NULL ? user : own.name;
    preflight_check(policy, &own, &env, NULL, &result);
    account_free(&result.account);
    account_free(&own);
    return result.text;
}

/* As a job of our own user. */
static const char *check(const char *cwd, const char *program)
{
    return check_as(&open_to_root, NULL, cwd, program);
}

static void make_file(const char *name, mode_t mode)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", here, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && fchmod(fd, mode) == 0 && close(fd) == 0);
}

/* 126: another try, or another node, would not help. */
TEST(a_user_that_is_refused_is_final)
{
    CHECK(strstr(check_as(&strict, "root", "/", "true"), "root") != NULL);
    CHECK_EQ(result.code, 126);
    CHECK(strstr(check_as(&strict, "no-such-user", "/", "true"), "no-such-user") != NULL);
    CHECK_EQ(result.code, 126);
}

TEST(a_job_is_checked_before_it_starts)
{
    char path[128], before[4096];
    CHECK(getcwd(before, sizeof before) != NULL && mkdtemp(here) != NULL);
    make_file("program", 0755);
    make_file("plain", 0644);

    CHECK_STR(check(here, "program"), "");
    CHECK_EQ(result.code, 0);
    CHECK_STR(check(here, "./program"), ""); /* from the working directory */
    CHECK(strstr(check(here, "plain"), "program plain cannot be run by") != NULL);
    CHECK_EQ(result.code, 126);
    CHECK(strstr(check(here, "other"), "node b: program other is not in the PATH of the job") !=
          NULL);
    CHECK_EQ(result.code, 127);
    CHECK(strstr(check(here, "./other"), "program ./other does not exist") != NULL);
    CHECK(strstr(check(here, ""), "program") != NULL);
    CHECK(result.code != 0);
    (void)snprintf(path, sizeof path, "%s/plain", here);
    CHECK(strstr(check(path, "program"), "is not a directory") != NULL);
    CHECK_EQ(result.code, 126);
    (void)snprintf(path, sizeof path, "%s/gone", here);
    CHECK(strstr(check(path, "program"), "gone does not exist (job of") != NULL);
    CHECK(strstr(result.text, "make it there, share the disk, or submit with --stage DIR") != NULL);
    CHECK_EQ(result.code, 126);

    CHECK_EQ(chdir(before), 0);
    (void)snprintf(path, sizeof path, "%s/program", here);
    CHECK_EQ(unlink(path), 0);
    (void)snprintf(path, sizeof path, "%s/plain", here);
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(rmdir(here), 0);
}

TEST_MAIN
