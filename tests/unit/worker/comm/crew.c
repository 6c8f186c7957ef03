#include "tests/unit/worker/comm/crew.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

struct start {
    struct crew_seat *seat;
    struct comm_options options;
    const struct comm_blob *blob;
    int (*body)(struct crew_seat *seat);
};

static void *run(void *user)
{
    struct start *start = user;
    struct crew_seat *seat = start->seat;
    struct err err = {.text = ""};

    seat->rc = -1;
    if (comm_connect(&seat->comm, &start->options, start->blob, &err) == STATUS_OK)
        seat->rc = start->body(seat);
    else
        (void)snprintf(seat->text, sizeof seat->text, "%s", err.text);
    comm_close(&seat->comm);
    return NULL;
}

void crew_run(struct crew *crew, uint32_t world, int (*body)(struct crew_seat *seat), void *user)
{
    pthread_t threads[CREW_WORLD_MAX];
    struct start starts[CREW_WORLD_MAX];
    struct comm_blob blob;
    struct err err = {.text = ""};

    CHECK(world >= 1 && world <= CREW_WORLD_MAX);
    memset(crew, 0, sizeof *crew);
    memset(starts, 0, sizeof starts);
    for (uint32_t i = 0; i < world; i++) {
        crew->seats[i].rank = i;
        crew->seats[i].world = world;
        crew->seats[i].user = user;
        starts[i] = (struct start){.seat = &crew->seats[i], .blob = &blob, .body = body};
        starts[i].options = (struct comm_options){.rank = i,
                                                  .world = world,
                                                  .job_id = 1,
                                                  .generation = 1,
                                                  .address = "127.0.0.1",
                                                  .timeout_us = 120000000};
    }
    if (comm_open(&crew->seats[0].comm, &starts[0].options, &blob, &err) != STATUS_OK)
        FAIL("%s", err.text);
    for (uint32_t i = 0; i < world; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, run, &starts[i]), 0);
    for (uint32_t i = 0; i < world; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

void crew_check(const struct crew *crew)
{
    for (uint32_t i = 0; i < CREW_WORLD_MAX; i++)
        if (crew->seats[i].rc != 0)
            FAIL("rank %u: %d: %s", i, crew->seats[i].rc, crew->seats[i].text);
}
