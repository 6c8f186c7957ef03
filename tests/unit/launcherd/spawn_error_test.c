/* What a failed start says: that the program cannot run, or that the machine could not try. */
#include "launcherd/process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcherd/process/run_error.h"
#include "tests/lib/test.h"

static char folder[64] = "/tmp/ddp-spawn-XXXXXX";
static struct err err;

static const char *in_folder(const char *name)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void make_file(const char *name, const char *text, mode_t mode)
{
    const int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(fchmod(fd, mode) == 0 && close(fd) == 0);
}

/* The exit code of the start, or 0 and the process has ended. */
static int start(const char *program, const char *search, const char *cwd)
{
    char *argv[] = {(char *)(uintptr_t)program, NULL}, *envp[] = {NULL};
    const struct spawn_order order = {.argv = argv,
                                      .envp = envp,
                                      .search = search,
                                      .cwd = cwd,
                                      .stdin_fd = -1,
                                      .stdout_fd = -1,
                                      .stderr_fd = -1,
                                      .extra_fd = -1};
    int exit_code = 0;
    pid_t pid;

    err = (struct err){0};
    if (spawn_process(&order, &pid, &exit_code, &err) != STATUS_OK)
        return exit_code;
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    return 0;
}

/* As in containers whose list of system calls is older than the kernel. */
static void forbid_faccessat2(void)
{
    struct sock_filter rows[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_faccessat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof rows / sizeof rows[0], .filter = rows};

    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
          prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

TEST(a_program_is_found_where_faccessat2_is_forbidden)
{
    const pid_t child = fork(); /* the filter stays until the process ends */
    int code = 0, status;

    if (child == 0) {
        forbid_faccessat2();
        _exit(spawn_find_program("sh", "/no/such:/bin", &code) ? 0 : 1);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

TEST(a_folder_is_made)
{
    CHECK(mkdtemp(folder) != NULL);
}

TEST(only_what_is_said_of_the_program_is_final)
{
    static const int final[] = {ENOENT, ENOTDIR, EACCES, EPERM, ENOEXEC,     ELIBBAD,
                                EINVAL, EISDIR,  ELOOP,  E2BIG, ENAMETOOLONG};
    static const int passing[] = {EAGAIN,   ENOMEM,       ENFILE,    EMFILE,    EIO,
                                  ESTALE,   ENOTCONN,     ETIMEDOUT, EHOSTDOWN, EHOSTUNREACH,
                                  ENETDOWN, ECONNREFUSED, EREMOTEIO, ENOKEY,    EKEYEXPIRED,
                                  ETXTBSY,  EBUSY,        EINTR,     ENOLCK,    EDQUOT,
                                  ENOSPC,   ENODEV,       ENXIO,     0,         4711};

    for (size_t i = 0; i < sizeof final / sizeof final[0]; i++)
        CHECK(run_error_is_final(final[i]));
    for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++)
        CHECK_EQ(run_error_exit(passing[i]), 125);
    CHECK_EQ(run_error_exit(ENOENT), 127);
    CHECK_EQ(run_error_exit(ENOTDIR), 127);
    CHECK_EQ(run_error_exit(EACCES), 126);
}

TEST(a_program_that_cannot_run)
{
    CHECK_EQ(start(in_folder("missing"), NULL, NULL), 127);
    make_file("plain", "#!/bin/sh\n", 0644);
    CHECK_EQ(start(in_folder("plain"), NULL, NULL), 126);
    make_file("text", "no program\n", 0755);
    CHECK_EQ(start(in_folder("text"), NULL, NULL), 126);
    CHECK_EQ(symlink("circle", in_folder("circle")), 0);
    CHECK_EQ(start(in_folder("circle"), NULL, NULL), 126);
    CHECK_EQ(start("/bin/true", NULL, in_folder("missing")), 126);
    CHECK_EQ(start("/bin/true", NULL, in_folder("circle")), 126);
    CHECK_EQ(start("/bin/true", NULL, NULL), 0);
}

static void copy_true(const char *name)
{
    char command[256];

    (void)snprintf(command, sizeof command, "cp /bin/true %s", in_folder(name));
    CHECK_EQ(system(command), 0); /* NOLINT(cert-env33-c): a test */
}

/* Somebody still writes the program. That passes; and a program of the same name in a later folder
 * of the PATH is another one. */
TEST(a_program_that_is_being_written)
{
    char search[160];
    int fd;

    copy_true("busy");
    fd = open(in_folder("busy"), O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_EQ(start(in_folder("busy"), NULL, NULL), 125);
    CHECK_EQ(err.code, ETXTBSY);
    CHECK(strstr(err.text, "it is being written now: does a copy or a build still run?") != NULL);
    CHECK_EQ(mkdir(in_folder("later"), 0700), 0);
    copy_true("later/busy");
    (void)snprintf(search, sizeof search, "%s:%s/later", folder, folder);
    CHECK_EQ(start("busy", search, NULL), 125);
    CHECK_EQ(close(fd), 0);
    CHECK_EQ(start("busy", search, NULL), 0);
}

/* exec says "no such file" of these, too; but the file is there. */
TEST(a_missing_interpreter_is_named)
{
    char line[200];

    make_file("script", "#! /no/such/interp -x\necho\n", 0755);
    CHECK_EQ(start(in_folder("script"), NULL, NULL), 127);
    CHECK(strstr(err.text, "its interpreter '/no/such/interp' (the first line) is not") != NULL);
    CHECK(strstr(err.text, "No such file") == NULL);
    CHECK_EQ(start("script", folder, NULL), 127);
    CHECK(strstr(err.text, "'script': its interpreter '/no/such/interp'") != NULL);
    make_file("script", "#!/bin/sh\r\necho\r\n", 0755);
    CHECK_EQ(start(in_folder("script"), NULL, NULL), 127);
    CHECK(strstr(err.text, "carriage return") != NULL && strchr(err.text, '\r') == NULL);
    (void)memset(line, 'i', sizeof line - 1);
    (void)memcpy(line, "#!/", 3);
    line[sizeof line - 1] = '\0';
    make_file("script", line, 0755);
    CHECK(start(in_folder("script"), NULL, NULL) != 0);
    CHECK_EQ(start(in_folder("missing"), NULL, NULL), 127);
    CHECK(strstr(err.text, "No such file") != NULL);
    CHECK_EQ(unlink(in_folder("script")), 0);
}

static int start_without_processes(void)
{
    const struct rlimit none = {1, 1};

    if ((geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) ||
        setrlimit(RLIMIT_NPROC, &none) != 0)
        return 1;
    return start("/bin/true", NULL, NULL) == 125 && err.code == EAGAIN ? 0 : 2;
}

TEST(a_user_without_a_free_process)
{
    int how = 0;
    const pid_t pid = fork();

    if (pid == 0)
        _exit(start_without_processes());
    CHECK_EQ(waitpid(pid, &how, 0), pid);
    CHECK(WIFEXITED(how));
    CHECK_EQ(WEXITSTATUS(how), 0);
}

static void remove_all(void)
{
    static const char *const names[] = {"plain", "text", "circle", "busy", "later/busy"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        CHECK_EQ(unlink(in_folder(names[i])), 0);
    CHECK_EQ(rmdir(in_folder("later")), 0);
    CHECK_EQ(rmdir(folder), 0);
}

TEST(nothing_stays)
{
    remove_all();
}

TEST_MAIN
