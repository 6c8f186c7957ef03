/* Packing a working directory, and unpacking it elsewhere. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/stage.h"
#include "ddpctl/stage_pack.h"
#include "launcherd/process/rundir.h"
#include "launcherd/shim/stage_unpack.h"
#include "tests/lib/test.h"

static char top[PATH_MAX];

static const char *in_top(const char *name)
{
    static char paths[4][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, PATH_MAX, "%.2000s/%s", top, name);
    return path;
}

static void make_top(void)
{
    const char *temp = getenv("TMPDIR");

    (void)snprintf(top, sizeof top, "%s/ddp-stage-XXXXXX", temp != NULL ? temp : "/tmp");
    CHECK(mkdtemp(top) != NULL);
}

static void write_file(const char *name, const char *text, mode_t mode)
{
    int fd = open(in_top(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd >= 0);
    CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
    CHECK_EQ(fchmod(fd, mode), 0);
    (void)close(fd);
}

static const char *read_file(const char *name)
{
    static char text[256];
    int fd = open(in_top(name), O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;

    if (fd >= 0)
        (void)close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got < 0 ? NULL : text;
}

/* What happens in the child before it unpacks; 0: it is done, else the test is skipped. */
static int (*prepare)(const char *job);

static enum status unpack(int tar_fd, struct err *err)
{
    const char *job = in_top("job");
    pid_t pid;
    int how, report[2];
    struct {
        enum status status;
        struct err err;
    } result = {.status = STATUS_SYSTEM};

    CHECK_EQ(stage_make_dir(job, NULL, err), STATUS_OK);
    CHECK_EQ(pipe(report), 0);
    pid = fork(); /* it changes its working directory */
    if (pid == 0) {
        if (prepare != NULL && prepare(job) != 0)
            _exit(77);
        result.status = stage_unpack(&(struct stage_source){tar_fd, job}, &result.err);
        _exit(write(report[1], &result, sizeof result) == sizeof result ? 0 : 1);
    }
    CHECK_EQ(waitpid(pid, &how, 0), pid);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 77)
        SKIP("mounting is not allowed");
    CHECK_EQ(read(report[0], &result, sizeof result), sizeof result);
    (void)close(report[0]);
    (void)close(report[1]);
    *err = result.err;
    return result.status;
}

static void make_project(void)
{
    make_top();
    CHECK_EQ(mkdir(in_top("a"), 0755), 0);
    CHECK_EQ(mkdir(in_top("a/.git"), 0755), 0);
    CHECK_EQ(mkdir(in_top("a/lib"), 0755), 0);
    CHECK_EQ(mkdir(in_top("a/lib/__pycache__"), 0755), 0);
    CHECK_EQ(mkdir(in_top("a/empty"), 0755), 0);
    write_file("a/train.py", "import lib\n", 0644);
    write_file("a/run.sh", "#!/bin/sh\n", 0755);
    write_file("a/lib/n\xc3\xa9t.py", "x = 1\n", 0640);
    write_file("a/lib/__pycache__/x.pyc", "junk", 0644);
    write_file("a/.git/HEAD", "junk", 0644);
    CHECK_EQ(symlink("train.py", in_top("a/link.py")), 0);
}

static void end(void)
{
    rundir_remove_all(AT_FDCWD, top);
    CHECK(access(top, F_OK) != 0);
}

TEST(what_is_packed_is_unpacked)
{
    struct stage_packed packed;
    struct stat info;
    struct err err;
    char target[64] = "";

    make_project();
    CHECK_EQ(stage_pack(in_top("a"), &packed, &err), STATUS_OK);
    CHECK_EQ(packed.file_count, 3);
    CHECK(stage_is_hash(packed.hash));
    CHECK_EQ(unpack(packed.fd, &err), STATUS_OK);
    CHECK_STR(read_file("job/files/train.py"), "import lib\n");
    CHECK_STR(read_file("job/files/lib/n\xc3\xa9t.py"), "x = 1\n");
    CHECK_EQ(stat(in_top("job/files/run.sh"), &info), 0);
    CHECK_EQ(info.st_mode & 0777, 0755);
    CHECK_EQ(stat(in_top("job/files/empty"), &info), 0);
    CHECK_EQ(readlink(in_top("job/files/link.py"), target, sizeof target - 1), 8);
    CHECK_STR(target, "train.py");
    CHECK(access(in_top("job/files/.git"), F_OK) != 0);
    CHECK(access(in_top("job/files/lib/__pycache__"), F_OK) != 0);
    (void)close(packed.fd);
    end();
}

TEST(the_same_content_is_the_same_archive)
{
    struct stage_packed first, again, other;
    struct err err;

    make_project();
    CHECK_EQ(stage_pack(in_top("a"), &first, &err), STATUS_OK);
    CHECK_EQ(stage_pack(in_top("a/"), &again, &err), STATUS_OK);
    CHECK_STR(again.hash, first.hash);
    CHECK_EQ(again.byte_count, first.byte_count);
    write_file("a/train.py", "import lab\n", 0644);
    CHECK_EQ(stage_pack(in_top("a"), &other, &err), STATUS_OK);
    CHECK(strcmp(other.hash, first.hash) != 0);
    (void)close(first.fd);
    (void)close(again.fd);
    (void)close(other.fd);
    end();
}

TEST(a_complete_one_stays_and_a_half_made_one_is_replaced)
{
    struct stage_packed packed;
    struct err err;

    make_project();
    CHECK_EQ(stage_pack(in_top("a"), &packed, &err), STATUS_OK);
    CHECK_EQ(unpack(packed.fd, &err), STATUS_OK);
    write_file("job/files/checkpoint", "step 12", 0600);
    CHECK_EQ(unpack(packed.fd, &err), STATUS_OK);
    CHECK_STR(read_file("job/files/checkpoint"), "step 12");
    CHECK_EQ(rename(in_top("job/files"), in_top("job/files.part")), 0);
    CHECK_EQ(unpack(packed.fd, &err), STATUS_OK);
    CHECK(read_file("job/files/checkpoint") == NULL);
    CHECK_STR(read_file("job/files/train.py"), "import lib\n");
    (void)close(packed.fd);
    end();
}

TEST(what_cannot_be_staged_is_refused_by_name)
{
    struct stage_packed packed;
    struct err err;

    make_project();
    CHECK_EQ(stage_pack(in_top("none"), &packed, &err), STATUS_NOT_FOUND);
    CHECK(strstr(err.text, "there is no such folder") != NULL);
    CHECK_EQ(stage_pack(in_top("a/train.py"), &packed, &err), STATUS_NOT_FOUND);
    CHECK_EQ(mkfifo(in_top("a/pipe"), 0600), 0);
    CHECK_EQ(stage_pack(in_top("a"), &packed, &err), STATUS_UNSUPPORTED);
    CHECK(strstr(err.text, "a/pipe") != NULL);
    CHECK_EQ(unlink(in_top("a/pipe")), 0);
    write_file("a/lib/data.bin", "", 0600);
    CHECK_EQ(truncate(in_top("a/lib/data.bin"), (off_t)STAGE_BYTES_MAX + 1), 0);
    CHECK_EQ(stage_pack(in_top("a"), &packed, &err), STATUS_TOO_BIG);
    CHECK(strstr(err.text, "the largest in it is lib") != NULL);
    end();
}

static uint64_t bytes_read(void)
{
    char line[64];
    FILE *file = fopen("/proc/self/io", "r");

    CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
    (void)fclose(file);
    CHECK_EQ(strncmp(line, "rchar: ", 7), 0);
    return strtoull(line + 7, NULL, 10);
}

/* Each file would fit. */
TEST(what_is_too_large_is_not_read)
{
    struct stage_packed packed;
    uint64_t before;
    struct err err;

    make_project();
    for (const char *name = "one\0two\0"; *name != '\0'; name += strlen(name) + 1) {
        char path[64];

        (void)snprintf(path, sizeof path, "a/%s", name);
        write_file(path, "", 0600);
        CHECK_EQ(truncate(in_top(path), (off_t)STAGE_BYTES_MAX / 2 + 1), 0);
    }
    before = bytes_read();
    CHECK_EQ(stage_pack(in_top("a"), &packed, &err), STATUS_TOO_BIG);
    CHECK(bytes_read() - before < 1u << 20);
    end();
}

/* An archive of one or two entries that does not come from our packer. */
static int hostile(const char *name, mode_t type, const char *target, const char *second)
{
    struct archive *archive = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    int fd = memfd_create("hostile", MFD_CLOEXEC);

    CHECK(fd >= 0 && archive != NULL && entry != NULL);
    CHECK_EQ(archive_write_set_format_pax_restricted(archive), ARCHIVE_OK);
    CHECK_EQ(archive_write_open_fd(archive, fd), ARCHIVE_OK);
    archive_entry_set_pathname(entry, name);
    archive_entry_set_mode(entry, type | 04755);
    if (target != NULL)
        archive_entry_set_symlink(entry, target);
    else
        archive_entry_set_size(entry, 4);
    CHECK_EQ(archive_write_header(archive, entry), ARCHIVE_OK);
    if (target == NULL)
        CHECK_EQ(archive_write_data(archive, "evil", 4), 4);
    if (second != NULL) {
        archive_entry_clear(entry);
        archive_entry_set_pathname(entry, second);
        archive_entry_set_mode(entry, S_IFREG | 0644);
        archive_entry_set_size(entry, 4);
        CHECK_EQ(archive_write_header(archive, entry), ARCHIVE_OK);
        CHECK_EQ(archive_write_data(archive, "evil", 4), 4);
    }
    CHECK_EQ(archive_write_free(archive), ARCHIVE_OK);
    archive_entry_free(entry);
    return fd;
}

TEST(no_entry_leaves_the_folder)
{
    struct stat info;
    struct err err;
    int fds[4];

    make_top();
    CHECK_EQ(mkdir(in_top("outside"), 0755), 0);
    fds[0] = hostile("../../outside/evil", S_IFREG, NULL, NULL);
    fds[1] = hostile(in_top("outside/evil"), S_IFREG, NULL, NULL);
    fds[2] = hostile("door", S_IFLNK, in_top("outside"), "door/evil");
    for (int i = 0; i < 3; i++) {
        CHECK(unpack(fds[i], &err) != STATUS_OK);
        CHECK(access(in_top("outside/evil"), F_OK) != 0);
        CHECK(access(in_top("job/files"), F_OK) != 0);
        CHECK(access(in_top("job/files.part"), F_OK) != 0);
        (void)close(fds[i]);
    }
    fds[3] = hostile("setuid", S_IFREG, NULL, NULL);
    CHECK_EQ(unpack(fds[3], &err), STATUS_OK);
    CHECK_EQ(stat(in_top("job/files/setuid"), &info), 0);
    CHECK_EQ(info.st_mode & 07777, 0755);
    (void)close(fds[3]);
    end();
}

static void pack_three_mib(struct stage_packed *packed)
{
    char bytes[65536];
    struct err err;
    int fd;

    make_top();
    CHECK_EQ(mkdir(in_top("a"), 0755), 0);
    fd = open(in_top("a/data.bin"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    memset(bytes, 'd', sizeof bytes);
    for (int i = 0; i < 48; i++)
        CHECK_EQ(write(fd, bytes, sizeof bytes), sizeof bytes);
    (void)close(fd);
    write_file("a/train.py", "import lib\n", 0644);
    CHECK_EQ(stage_pack(in_top("a"), packed, &err), STATUS_OK);
}

static int mount_small_disk(const char *job)
{
    return unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0
               ? -1
               : mount("tmpfs", job, "tmpfs", 0, "size=2m,mode=0700");
}

/* A part of the content is no staged directory. */
TEST(a_full_disk_is_a_failure_of_the_node)
{
    struct stage_packed packed;
    struct err err = {.text = ""};
    enum status status;

    pack_three_mib(&packed);
    prepare = mount_small_disk;
    status = unpack(packed.fd, &err);
    prepare = NULL;
    (void)close(packed.fd);
    end();
    CHECK_EQ(status, STATUS_IO);
    CHECK_EQ(err.code, ENOSPC);
    CHECK(strstr(err.text, strerror(ENOSPC)) != NULL);
}

static int limit_file_size(const char *job)
{
    (void)job;
    (void)signal(SIGXFSZ, SIG_IGN);
    return setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, 1 << 20});
}

TEST(a_write_that_fails_leaves_no_staged_directory)
{
    struct stage_packed packed;
    struct err err = {.text = ""};
    enum status status;

    pack_three_mib(&packed);
    prepare = limit_file_size;
    status = unpack(packed.fd, &err);
    prepare = NULL;
    CHECK(access(in_top("job/files"), F_OK) != 0);
    CHECK(access(in_top("job/files.part"), F_OK) != 0);
    (void)close(packed.fd);
    end();
    CHECK_EQ(status, STATUS_IO);
    CHECK_EQ(err.code, EFBIG);
    CHECK(strstr(err.text, strerror(EFBIG)) != NULL);
}

TEST(what_is_no_archive_is_refused)
{
    struct err err;
    int fd = memfd_create("junk", MFD_CLOEXEC);
    char junk[4096];

    make_top();
    memset(junk, 'j', sizeof junk);
    CHECK_EQ(write(fd, junk, sizeof junk), sizeof junk);
    CHECK(unpack(fd, &err) != STATUS_OK);
    CHECK(strstr(err.text, "the staged directory") != NULL);
    (void)close(fd);
    end();
}

TEST(the_working_directory_of_a_staged_job)
{
    char hash[STAGE_HASH_CHARS + 1];
    const char *sha_of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    struct stage_digest *digest;
    char cwd[STAGE_CWD_BYTES_MAX];

    CHECK_EQ(stage_digest_new(&digest, NULL), STATUS_OK);
    stage_digest_end(&digest, hash);
    CHECK_STR(hash, sha_of_nothing);
    (void)snprintf(cwd, sizeof cwd, STAGE_PREFIX "%s", sha_of_nothing);
    CHECK(stage_of_cwd(cwd, hash));
    CHECK(!stage_of_cwd("/home/x", hash));
    CHECK(!stage_of_cwd("stage:", hash));
    cwd[strlen(cwd) - 1] = 'G';
    CHECK(!stage_of_cwd(cwd, hash));
}

TEST_MAIN
