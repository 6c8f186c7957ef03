#include "tests/integration/comm/group.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/test.h"

#define PATIENCE_US UINT64_C(60000000)

uint64_t group_now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

struct group group_of(uint32_t world, group_body member, void *user)
{
    struct group group = {.world = world,
                          .member = member,
                          .user = user,
                          .timeout_us = 30000000,
                          .absent = UINT32_MAX,
                          .alien = UINT32_MAX};

    return group;
}

static int rank_main(struct group *group, uint32_t rank, int blob_fd, int out)
{
    struct comm_options options = {.rank = rank,
                                   .world = group->world,
                                   .job_id = 7,
                                   .generation = 3,
                                   .address = "127.0.0.1",
                                   .timeout_us = group->timeout_us,
                                   .busy_us = group->busy_us};
    struct comm *comm = NULL;
    struct err err = {.text = ""};
    enum status status = STATUS_OK;
    int rc;

    if (rank == 0) {
        status = comm_open(&comm, &options, &group->blob, &err);
        if (status != STATUS_OK || write(blob_fd, &group->blob, sizeof group->blob) < 0)
            return 3;
    } else if (read(blob_fd, &group->blob, sizeof group->blob) != (ssize_t)sizeof group->blob) {
        return 3;
    }
    if (rank == group->alien)
        group->blob.bytes[30] ^= 1; /* in the secret */
    status = comm_connect(&comm, &options, &group->blob, &err);
    if (status != STATUS_OK) {
        (void)dprintf(out, "connect: %s: %s\n", status_name(status), err.text);
        return 2;
    }
    rc = group->member(comm, rank, group->world, out, group->user);
    comm_close(&comm);
    return rc;
}

/* Forks one child, which closes all descriptors of other ranks, so that readers see the end of each
 * stream. */
static void fork_rank(struct group *group, uint32_t rank, int blob_pipe[2], int out_pipe[2])
{
    int blob_fd = blob_pipe[rank == 0 ? 1 : 0];

    (void)fflush(stdout);
    group->pids[rank] = fork();
    if (group->pids[rank] < 0)
        FAIL("fork: %s", strerror(errno));
    if (group->pids[rank] != 0)
        return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint32_t i = 0; i < rank; i++) {
        (void)close(group->outs[i]);
        (void)close(group->blob_fds[i]);
    }
    (void)close(blob_pipe[rank == 0 ? 0 : 1]);
    (void)close(out_pipe[0]);
    exit(rank_main(group, rank, blob_fd, out_pipe[1]));
}

void group_start(struct group *group)
{
    for (uint32_t i = 0; i < group->world; i++) {
        int blob_pipe[2], out_pipe[2];

        if (i == group->absent) {
            group->outs[i] = group->blob_fds[i] = -1;
            continue;
        }
        if (pipe(blob_pipe) < 0 || pipe(out_pipe) < 0)
            FAIL("pipe: %s", strerror(errno));
        fork_rank(group, i, blob_pipe, out_pipe);
        group->outs[i] = out_pipe[0];
        group->blob_fds[i] = blob_pipe[i == 0 ? 0 : 1];
        (void)close(out_pipe[1]);
        (void)close(blob_pipe[i == 0 ? 1 : 0]);
    }
    CHECK_EQ(read(group->blob_fds[0], &group->blob, sizeof group->blob), sizeof group->blob);
    (void)close(group->blob_fds[0]);
}

void group_release(struct group *group)
{
    for (uint32_t i = 1; i < group->world; i++) {
        if (i == group->absent)
            continue;
        CHECK_EQ(write(group->blob_fds[i], &group->blob, sizeof group->blob), sizeof group->blob);
        (void)close(group->blob_fds[i]);
    }
}

/* false: the rank has closed its output. */
static bool read_some(struct group *group, uint32_t rank, uint64_t deadline_us)
{
    char *text = group->texts[rank];
    size_t used = strlen(text);
    struct pollfd fd = {.fd = group->outs[rank], .events = POLLIN};
    uint64_t now_us = group_now_us();
    ssize_t n;

    if (now_us >= deadline_us || poll(&fd, 1, (int)((deadline_us - now_us) / 1000) + 1) == 0)
        FAIL("rank %u hangs; it printed: %s", rank, text);
    if (used >= GROUP_TEXT_BYTES - 1)
        FAIL("rank %u prints too much", rank);
    n = read(fd.fd, text + used, GROUP_TEXT_BYTES - 1 - used);
    return n > 0;
}

void group_expect(struct group *group, uint32_t rank, const char *line)
{
    uint64_t deadline_us = group_now_us() + PATIENCE_US;

    while (strstr(group->texts[rank], line) == NULL)
        if (!read_some(group, rank, deadline_us))
            FAIL("rank %u ended; \"%s\" is not in: %s", rank, line, group->texts[rank]);
}

int group_wait(struct group *group, uint32_t rank)
{
    uint64_t deadline_us = group_now_us() + PATIENCE_US;
    int wait_status = 0;

    while (read_some(group, rank, deadline_us))
        ;
    (void)close(group->outs[rank]);
    if (waitpid(group->pids[rank], &wait_status, 0) != group->pids[rank])
        FAIL("waitpid: %s", strerror(errno));
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

void group_run(struct group *group)
{
    group_start(group);
    group_release(group);
    for (uint32_t i = 0; i < group->world; i++) {
        int rc = group_wait(group, i);

        if (rc != 0)
            FAIL("rank %u of %u ended with %d: %s", i, group->world, rc, group->texts[i]);
    }
}
