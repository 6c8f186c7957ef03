/* The end of a shim's lease, in a page of memory that the shim makes (a memfd) and keeps open. launcherd maps it, too, by
 * /proc, and writes each renewal there; the guard of the shim (launcherd/shim/guard.h) reads it. So the lease is known
 *
 *   to a shim that was stopped, before it reads the messages that wait
 *   to a launcherd that was started again, although the shim is stopped and no server answers
 *   to the guard, when neither of them runs
 *
 * No disk is involved, so a renewal cannot hang. The page goes with the last process that has it, at the latest with
 * this boot, whose clock it counts by (CLOCK_BOOTTIME). */
#ifndef LAUNCHERD_PROCESS_LEASE_PAGE_H
#define LAUNCHERD_PROCESS_LEASE_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct lease_page {
    _Atomic(uint64_t) until_us; /* only ever grows; 0: none yet */
    atomic_bool is_over;        /* the shim has begun to end its ranks because the lease is over */
    atomic_bool has_ended;      /* the shim exits, and has left no process of the job */
};

/* Makes the page of this process, whose descriptor stays open. NULL: errno. */
struct lease_page *lease_page_make(void);
/* Maps the page that `fd` is. NULL: it is none, or cannot be mapped. */
struct lease_page *lease_page_map(int fd);
/* Finds and maps the page of another process. `fd`: its descriptor here, which the caller closes; NULL: not wanted. NULL:
 * it has none, or is gone, or is not ours. Reads /proc/PID/fd, so it is for threads only. */
struct lease_page *lease_page_find(pid_t pid, int *fd);
void lease_page_unmap(struct lease_page *page);

/* This process is the guard from now on, until it ends or closes a descriptor of the page. False: another one is. */
bool lease_page_begin_guard(int fd);
/* Whether a process is the guard. It is memory, so this does not hang. */
bool lease_page_is_guarded(int fd);

/* 0: none yet, or no page. */
uint64_t lease_page_until_us(const struct lease_page *page);
/* An earlier end changes nothing. */
void lease_page_extend(struct lease_page *page, uint64_t until_us);

#endif
