/* Descriptors are closed, or marked, also where the kernel has no close_range(2). */
#include "common/io/close_from.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"

#define FIRST 100
#define HIGH 900

/* From here on close_range fails with `code`; 0: it is as it is. */
static void refuse(unsigned code)
{
    struct sock_filter rows[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | code),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof rows / sizeof rows[0], .filter = rows};

    CHECK(code == 0 || (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0));
}

static void check(unsigned code, bool on_exec)
{
    refuse(code);
    for (int fd = FIRST - 1; fd < HIGH; fd++)
        CHECK_EQ(dup2(STDERR_FILENO, fd), fd);
    CHECK(close_from(FIRST, on_exec));
    CHECK_EQ(fcntl(FIRST - 1, F_GETFD), 0);
    for (int fd = FIRST; fd < HIGH; fd++)
        CHECK_EQ(fcntl(fd, F_GETFD), on_exec ? FD_CLOEXEC : -1);
}

TEST(with_the_kernels_call_and_without_it)
{
    const unsigned codes[] = {0, ENOSYS, EINVAL, EPERM};

    for (size_t i = 0; i < 2 * sizeof codes / sizeof codes[0]; i++) {
        const pid_t child = fork(); /* a filter stays until the process ends */
        int status;

        CHECK(child >= 0);
        if (child == 0) {
            check(codes[i / 2], i % 2 == 0);
            _exit(0);
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
    }
}

TEST_MAIN
