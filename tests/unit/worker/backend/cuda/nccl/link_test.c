/* The communicator over the stand-in libnccl: four ranks as threads. The library is in
 * $DDP_TEST_NCCL.
 */
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/half.h"
#include "tests/lib/test.h"
#include "tests/standin/nccl/standin_nccl.h"
#include "worker/backend/cuda/nccl/nccl.h"

enum { WORLD = 4, COUNT = 1000, SECOND_US = 1000000 };

static const char *library_path(void)
{
    const char *path = getenv("DDP_TEST_NCCL");

    if (path == NULL)
        FAIL("DDP_TEST_NCCL is not set");
    return path;
}

/* The stand-in's own functions. */
static void *standin(const char *name)
{
    void *library = dlopen(library_path(), RTLD_NOW | RTLD_GLOBAL);
    void *found = library != NULL ? dlsym(library, name) : NULL;

    if (found == NULL)
        FAIL("%s: %s", name, dlerror());
    return found;
}

static void set(const char *name, int value)
{
    void (*function)(int);
    void *found = standin(name);

    memcpy(&function, &found, sizeof function);
    function(value);
}

static int ask(const char *name)
{
    int (*function)(void);
    void *found = standin(name);

    memcpy(&function, &found, sizeof function);
    return function();
}

static int registered(void)
{
    return ask("standin_nccl_registered");
}

struct rank {
    struct nccl_link_options options;
    enum graph_dtype dtype;
    bool stays_away;
    struct nccl_link *link;
    float values[COUNT];
    uint16_t halves[COUNT];
    enum status status;
    struct err err;
    pthread_t thread;
};

static bool nobody_gone(void *user, struct err *err)
{
    (void)user;
    (void)err;
    return false;
}

static bool rank_2_gone(void *user, struct err *err)
{
    (void)user;
    (void)err_set(err, STATUS_PEER_LOST, 0, "rank 2 was lost");
    return true;
}

static void *open_one(void *user)
{
    struct rank *rank = user;

    rank->status =
        rank->stays_away ? STATUS_CLOSED : cuda_nccl.open(&rank->link, &rank->options, &rank->err);
    return NULL;
}

static void *sum_one(void *user)
{
    struct rank *rank = user;
    void *memory = rank->dtype == GRAPH_F32 ? (void *)rank->values : (void *)rank->halves;

    rank->status = cuda_nccl.register_memory(rank->link, memory, sizeof rank->values, &rank->err);
    if (rank->status == STATUS_OK)
        rank->status =
            cuda_nccl.queue_sum(rank->link, memory, COUNT, rank->dtype, NULL, &rank->err);
    return NULL;
}

static void *close_one(void *user)
{
    struct rank *rank = user;

    cuda_nccl.close(&rank->link, 60 * SECOND_US);
    return NULL;
}

static void all(struct rank *ranks, void *(*body)(void *))
{
    for (uint32_t i = 0; i < WORLD; i++)
        CHECK_EQ(pthread_create(&ranks[i].thread, NULL, body, &ranks[i]), 0);
    for (uint32_t i = 0; i < WORLD; i++)
        CHECK_EQ(pthread_join(ranks[i].thread, NULL), 0);
}

static struct rank *ranks_new(uint64_t timeout_us, bool (*gone)(void *, struct err *))
{
    struct rank *ranks = calloc(WORLD, sizeof *ranks);
    uint8_t id[NCCL_ID_BYTES];
    struct err err;

    CHECK(ranks != NULL);
    CHECK_EQ(cuda_nccl.id_new(library_path(), "127.0.0.1", id, &err), STATUS_OK);
    for (uint32_t i = 0; i < WORLD; i++) {
        ranks[i].options = (struct nccl_link_options){.library = library_path(),
                                                      .rank = i,
                                                      .world = WORLD,
                                                      .timeout_us = timeout_us,
                                                      .gone = gone};
        memcpy(ranks[i].options.id, id, sizeof id);
    }
    return ranks;
}

static void open_all(struct rank *ranks)
{
    all(ranks, open_one);
    for (uint32_t i = 0; i < WORLD; i++)
        if (ranks[i].status != STATUS_OK)
            FAIL("rank %u: %s", i, ranks[i].err.text);
}

static void check_sum(enum graph_dtype dtype)
{
    struct rank *ranks = ranks_new(60 * SECOND_US, nobody_gone);

    for (uint32_t r = 0; r < WORLD; r++)
        for (uint32_t i = 0; i < COUNT; i++) {
            const float value = (float)(i % 64) * (float)(r + 1); /* exact in every type */

            ranks[r].dtype = dtype;
            ranks[r].values[i] = value;
            ranks[r].halves[i] = dtype == GRAPH_F16 ? half_f16_from(value) : half_bf16_from(value);
        }
    open_all(ranks);
    all(ranks, sum_one);
    CHECK_EQ(registered(), WORLD);
    for (uint32_t r = 0; r < WORLD; r++) {
        CHECK_EQ(ranks[r].status, STATUS_OK);
        for (uint32_t i = 0; i < COUNT; i++) {
            const float sum = 10.0F * (float)(i % 64);
            const float got = dtype == GRAPH_F32   ? ranks[r].values[i]
                              : dtype == GRAPH_F16 ? half_f16_to(ranks[r].halves[i])
                                                   : half_bf16_to(ranks[r].halves[i]);

            if (!(got >= sum * 0.995F && got <= sum * 1.005F))
                FAIL("type %d, rank %u, element %u: %g is not %g", (int)dtype, r, i, (double)got,
                     (double)sum);
        }
    }
    all(ranks, close_one);
    CHECK_EQ(registered(), 0);
    free(ranks);
}

TEST(sums_in_every_type)
{
    const char *ras;
    const char *interface;

    check_sum(GRAPH_F32);
    check_sum(GRAPH_F16);
    check_sum(GRAPH_BF16);
    ras = getenv("NCCL_RAS_ENABLE");
    interface = getenv("NCCL_SOCKET_IFNAME");
    CHECK_STR(ras != NULL ? ras : "not set", "0");
    CHECK_STR(interface != NULL ? interface : "not set", "=lo");
}

TEST(a_communicator_that_blocks)
{
    struct rank *ranks = ranks_new(60 * SECOND_US, nobody_gone);

    for (uint32_t r = 0; r < WORLD; r++)
        ranks[r].options.blocks = true;
    open_all(ranks);
    all(ranks, sum_one);
    for (uint32_t r = 0; r < WORLD; r++)
        CHECK_EQ(ranks[r].status, STATUS_OK);
    all(ranks, close_one);
    free(ranks);
}

TEST(a_rank_that_does_not_come_is_a_timeout)
{
    struct rank *ranks = ranks_new(SECOND_US / 5, nobody_gone);

    ranks[3].stays_away = true;
    all(ranks, open_one);
    for (uint32_t i = 0; i < WORLD - 1; i++) {
        CHECK_EQ(ranks[i].status, STATUS_TIMEOUT);
        CHECK(strstr(ranks[i].err.text, "joining the communicator did not end") != NULL);
        CHECK(ranks[i].link == NULL);
    }
    free(ranks);
}

TEST(a_lost_peer_ends_the_wait_and_is_named)
{
    struct rank *ranks = ranks_new(60 * SECOND_US, rank_2_gone);

    ranks[2].stays_away = true;
    all(ranks, open_one);
    CHECK_EQ(ranks[0].status, STATUS_PEER_LOST);
    CHECK_STR(ranks[0].err.text, "rank 2 was lost");
    free(ranks);
}

static void *abort_one(void *user)
{
    struct rank *rank = user;

    cuda_nccl.abort(rank->link);
    return NULL;
}

TEST(an_abort_ends_a_collective_that_waits)
{
    struct rank *ranks = ranks_new(60 * SECOND_US, nobody_gone);
    pthread_t aborter;
    struct err err;

    open_all(ranks);
    CHECK_EQ(pthread_create(&ranks[0].thread, NULL, sum_one, &ranks[0]), 0);
    while (registered() == 0) /* rank 0 is on its way into the collective; nobody else comes */
        (void)sched_yield();
    CHECK_EQ(pthread_create(&aborter, NULL, abort_one, &ranks[0]), 0);
    CHECK_EQ(pthread_join(aborter, NULL), 0);
    CHECK_EQ(pthread_join(ranks[0].thread, NULL), 0);
    CHECK_EQ(ranks[0].status, STATUS_CLOSED);
    CHECK_EQ(cuda_nccl.check(ranks[0].link, &err), STATUS_CLOSED);
    for (uint32_t i = 1; i < WORLD; i++)
        cuda_nccl.abort(ranks[i].link);
    all(ranks, close_one);
    free(ranks);
}

TEST(an_error_of_nccl_is_told_in_its_words)
{
    struct rank *ranks = ranks_new(60 * SECOND_US, nobody_gone);
    struct err err = {.text = ""};

    open_all(ranks);
    CHECK_EQ(cuda_nccl.check(ranks[1].link, &err), STATUS_OK);
    set("standin_nccl_async_error", ncclSystemError);
    CHECK_EQ(cuda_nccl.check(ranks[1].link, &err), STATUS_LIBRARY);
    CHECK(strstr(err.text, "rank 1 of 4: a collective failed: unhandled system error (") != NULL);
    CHECK(strstr(err.text, ": the stand-in's last words") != NULL);
    for (uint32_t i = 0; i < WORLD; i++)
        cuda_nccl.abort(ranks[i].link);
    set("standin_nccl_async_error", ncclSuccess);
    all(ranks, close_one);
    free(ranks);
}

TEST(memory_of_nccl_is_made_and_given_back)
{
    struct err err = {.text = ""};
    void *memory = NULL;

    CHECK_EQ(cuda_nccl.memory_new(library_path(), &memory, 1000, &err), STATUS_OK);
    CHECK(memory != NULL && ask("standin_nccl_allocated") == 1);
    memset(memory, 0, 1000);
    cuda_nccl.memory_free(library_path(), &memory);
    cuda_nccl.memory_free(library_path(), &memory);
    CHECK(memory == NULL && ask("standin_nccl_allocated") == 0);
    CHECK_EQ(cuda_nccl.memory_new(library_path(), &memory, SIZE_MAX, &err), STATUS_LIBRARY);
    CHECK(memory == NULL && strstr(err.text, "memory for gradients: invalid argument") != NULL);
}

/* The oldest that has every function; the configuration carries its own size. */
TEST(nccl_2_19_is_taken)
{
    struct rank *ranks;

    set("standin_nccl_version", NCCL_VERSION(2, 19, 1));
    ranks = ranks_new(60 * SECOND_US, nobody_gone);
    open_all(ranks);
    all(ranks, close_one);
    free(ranks);
    set("standin_nccl_version", NCCL_VERSION_CODE);
}

TEST(which_nccl_it_is)
{
    struct nccl_found found;
    struct err err = {.text = ""};

    set("standin_nccl_version", NCCL_VERSION(2, 30, 7));
    CHECK_EQ(cuda_nccl.find(library_path(), &found, &err), STATUS_OK);
    CHECK_EQ(found.version, 23007);
    CHECK_STR(found.path, library_path());
    set("standin_nccl_version", NCCL_VERSION_CODE);
    CHECK_EQ(setenv("DDP_NCCL", "/nowhere/libnccl.so.2", 1), 0);
    CHECK_EQ(cuda_nccl.find(library_path(), &found, &err), STATUS_OK);
    CHECK_EQ(cuda_nccl.find(NULL, &found, &err), STATUS_NOT_FOUND);
    CHECK(found.version == 0 && strstr(err.text, "DDP_NCCL") != NULL);
}

TEST(old_and_missing_libraries_are_named)
{
    uint8_t id[NCCL_ID_BYTES];
    struct err err = {.text = ""};

    set("standin_nccl_version", NCCL_VERSION(2, 18, 5));
    CHECK_EQ(cuda_nccl.id_new(library_path(), NULL, id, &err), STATUS_UNSUPPORTED);
    CHECK(strstr(err.text, "2.18.5") != NULL && strstr(err.text, "2.19.1") != NULL);
    set("standin_nccl_version", NCCL_VERSION_CODE);
    CHECK_EQ(cuda_nccl.id_new("libnccl-that-is-not.so.2", NULL, id, &err), STATUS_NOT_FOUND);
    CHECK(strstr(err.text, "libnccl-that-is-not.so.2") != NULL);
}

TEST_MAIN
