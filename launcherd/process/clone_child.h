/* A child that shares our memory until it runs a program or ends, as with vfork. It may be born in a cgroup.
 * Writing to cgroup.procs, the other way into a cgroup, can take 10 ms: there the kernel waits until no process
 * forks or ends (an RCU grace period). */
#ifndef LAUNCHERD_PROCESS_CLONE_CHILD_H
#define LAUNCHERD_PROCESS_CLONE_CHILD_H

#include <sys/types.h>

/* Marks functions that run in a child which shares our memory and never returns from
 * them. A sanitizer's marks would stay behind. */
#define IN_CHILD __attribute__((no_sanitize("address")))

/* Runs `run(argument)` in the child, on a stack of its own and with all signals blocked; what it
 * returns is the exit code. We wait until it has run a program or ended. `cgroup_fd`: the folder of
 * the child's cgroup; -1: ours. Returns -1 with errno. A cgroup is refused (ENOSYS and others) by
 * kernels before 5.7, in containers that filter clone3, and on other machines than x86-64 and ARM64: the
 * child can still be moved there. `pid` not NULL: the kernel writes the child's number there before the
 * child runs, for another thread. */
pid_t clone_child(int cgroup_fd, int (*run)(void *), void *argument, pid_t *pid);

#endif
