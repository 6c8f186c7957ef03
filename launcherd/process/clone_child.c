#include "launcherd/process/clone_child.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define STACK_BYTES (64u * 1024u)

/* clone3(2), for which glibc has no function. The child begins on the stack of `args`: so it must not
 * return from here, and calls `run` at once. -1: errno. The code for ARM64 is assembled and was read, but has never
 * run (tests/lint, assemble-arm64). */
static pid_t call_clone3(const struct clone_args *args, int (*run)(void *), void *argument)
{
#if defined(__x86_64__)
    register int64_t result __asm__("rax") = SYS_clone3;
    register int (*function)(void *) __asm__("r12") = run;
    register void *first __asm__("r13") = argument;

    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t" /* the outermost frame */
                     "mov %%r13, %%rdi\n\t"
                     "call *%%r12\n\t"
                     "mov %%eax, %%edi\n\t"
                     "mov %[exit], %%eax\n\t"
                     "syscall\n\t"
                     "hlt\n"
                     "1:"
                     : "+r"(result)
                     : "D"(args), "S"(sizeof *args), "r"(function), "r"(first), [exit] "i"(SYS_exit)
                     : "rcx", "r11", "memory", "cc");
#elif defined(__aarch64__)
    register int64_t result __asm__("x0") = (int64_t)(intptr_t)args;
    register uint64_t bytes __asm__("x1") = sizeof *args;
    register int64_t number __asm__("x8") = SYS_clone3;
    register int (*function)(void *) __asm__("x20") = run;
    register void *first __asm__("x21") = argument;

    __asm__ volatile("svc 0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, 0\n\t" /* the outermost frame */
                     "mov x0, x21\n\t"
                     "blr x20\n\t"
                     "mov x8, %[exit]\n\t"
                     "svc 0\n\t"
                     "brk 0\n"
                     "1:"
                     : "+r"(result)
                     : "r"(bytes), "r"(number), "r"(function), "r"(first), [exit] "i"(SYS_exit)
                     : "memory", "cc");
#else
    int64_t result = -ENOSYS;

    (void)args, (void)run, (void)argument;
#endif
    if (result >= 0)
        return (pid_t)result;
    errno = (int)-result;
    return -1;
}

pid_t clone_child(int cgroup_fd, int (*run)(void *), void *argument, pid_t *told)
{
    const unsigned share = CLONE_VM | CLONE_VFORK | (told != NULL ? CLONE_PARENT_SETTID : 0);
    sigset_t all, before;
    int code;
    pid_t pid;
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    const struct clone_args args = {
        .flags = share | CLONE_INTO_CGROUP,
        .parent_tid = (uint64_t)(uintptr_t)told,
        .exit_signal = SIGCHLD,
        .stack = (uint64_t)(uintptr_t)stack,
        .stack_size = STACK_BYTES,
        .cgroup = (uint32_t)cgroup_fd,
    };

    if (stack == MAP_FAILED)
        return -1;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before); /* none of our handlers may run in the child */
    pid = cgroup_fd >= 0 ? call_clone3(&args, run, argument)
                         : clone(run, stack + STACK_BYTES, (int)share | SIGCHLD, argument, told);
    code = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    munmap(stack, STACK_BYTES);
    errno = code;
    return pid;
}
