/* A group of real processes, one per rank, that connect over loopback. For the tests of comm and
 * ddp. */
#ifndef TESTS_INTEGRATION_COMM_GROUP_H
#define TESTS_INTEGRATION_COMM_GROUP_H

#include <stdint.h>
#include <sys/types.h>

#include "worker/comm/comm.h"

#define GROUP_WORLD_MAX 16
#define GROUP_TEXT_BYTES 4096

/* What a rank does once connected; returns its exit code. It may print to `out`, which the test
 * reads. */
typedef int (*group_body)(struct comm *comm, uint32_t rank, uint32_t world, int out, void *user);

struct group {
    uint32_t world;
    group_body member;
    void *user;
    uint64_t timeout_us, busy_us;
    uint32_t absent; /* a rank that never comes; UINT32_MAX: none */
    uint32_t alien;  /* a rank that comes with a wrong secret; UINT32_MAX: none */
    struct comm_blob blob;
    pid_t pids[GROUP_WORLD_MAX];
    int outs[GROUP_WORLD_MAX];     /* read ends */
    int blob_fds[GROUP_WORLD_MAX]; /* write ends; the group hands out the blob in group_release */
    char texts[GROUP_WORLD_MAX][GROUP_TEXT_BYTES]; /* what each rank has printed so far */
};

/* A group with this world, member and user, and defaults for the rest. */
struct group group_of(uint32_t world, group_body member, void *user);
/* Forks the ranks. Rank 0 opens, and its blob is then in `group->blob`. The others wait for it. */
void group_start(struct group *group);
/* Lets the other ranks come. */
void group_release(struct group *group);
/* Reads what `rank` prints until `line` is in it. Ends the test after a generous time. */
void group_expect(struct group *group, uint32_t rank, const char *line);
/* Waits for the end of `rank`. Returns its exit code, or 128 + signal; its text is then
 * complete. */
int group_wait(struct group *group, uint32_t rank);
/* Start, release, wait for all; each must end with 0. */
void group_run(struct group *group);
uint64_t group_now_us(void);

#endif
