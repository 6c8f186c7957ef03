#include "tests/bench/overlap/ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

uint64_t ranks_now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

uint64_t ranks_median(uint64_t *values, uint32_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

void ranks_must(enum status status, const struct err *err)
{
    if (status == STATUS_OK)
        return;
    (void)fprintf(stderr, "bench: %s\n", err->text);
    exit(1);
}

bool ranks_parse(const char *text, uint32_t most, uint32_t *value)
{
    char *end;
    unsigned long number;

    errno = 0;
    number = strtoul(text, &end, 10);
    *value = (uint32_t)number;
    return errno == 0 && *end == '\0' && number >= 1 && number <= most;
}

/* Rank 0's address goes through a pipe. */
static struct comm *meet(uint32_t rank, uint32_t world, const int *pipes)
{
    struct comm_options options = {.rank = rank,
                                   .world = world,
                                   .job_id = 1,
                                   .generation = 1,
                                   .address = "127.0.0.1",
                                   .timeout_us = 60000000};
    struct comm *comm = NULL;
    struct comm_blob blob;
    struct err err;

    if (rank == 0) {
        ranks_must(comm_open(&comm, &options, &blob, &err), &err);
        for (uint32_t i = 1; i < world; i++)
            if (write(pipes[1], &blob, sizeof blob) != (ssize_t)sizeof blob)
                exit(1);
    } else if (read(pipes[0], &blob, sizeof blob) != (ssize_t)sizeof blob) {
        exit(1);
    }
    ranks_must(comm_connect(&comm, &options, &blob, &err), &err);
    return comm;
}

bool ranks_run(uint32_t world, void (*body)(void *user, struct comm *comm, uint32_t rank),
               void *user)
{
    bool went_well = true;
    int pipes[2];

    if (pipe(pipes) < 0)
        return false;
    for (uint32_t rank = 0; rank < world; rank++) {
        pid_t pid = fork();

        if (pid < 0)
            return false;
        if (pid == 0) {
            struct comm *comm = meet(rank, world, pipes);

            body(user, comm, rank);
            comm_close(&comm);
            exit(0);
        }
    }
    for (uint32_t rank = 0; rank < world; rank++) {
        int wait_status;

        if (wait(&wait_status) < 0 || wait_status != 0)
            went_well = false;
    }
    return went_well;
}
