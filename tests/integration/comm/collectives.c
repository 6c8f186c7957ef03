/* Collectives among real processes: values, equal bits on all ranks, odd sizes. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/integration/comm/group.h"
#include "tests/lib/test.h"

/* A value whose sums need rounding, different for every rank and index. */
static float value_of(uint32_t rank, size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761U + rank * 40503U + 12345U;

    x ^= x >> 15;
    x *= 2246822519U;
    return ((float)(x >> 8) / 16777216.0F - 0.5F) * (rank % 2 == 0 ? 1.0F : 1e3F);
}

static uint64_t fold(const void *bytes, size_t byte_count)
{
    const uint8_t *next = bytes;
    uint64_t hash = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < byte_count; i++)
        hash = (hash ^ next[i]) * UINT64_C(1099511628211);
    return hash;
}

#define MUST(call)                                                                                 \
    do {                                                                                           \
        if ((call) != STATUS_OK) {                                                                 \
            (void)dprintf(out, "%s: %s\n", #call, err.text);                                       \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* Compares sums with those in double precision; prints a hash of the bits, to compare ranks and
 * runs. */
static int reduce_f32(struct comm *comm, uint32_t rank, uint32_t world, int out, size_t count)
{
    float *values = malloc((count + 2) * sizeof *values);
    struct err err;
    int rc = 0;

    values[0] = values[count + 1] = 77.0F; /* guards */
    for (size_t i = 0; i < count; i++)
        values[1 + i] = value_of(rank, i);
    MUST(comm_all_reduce_sum(comm, values + 1, count, &err));
    for (size_t i = 0; i < count && rc == 0; i++) {
        double sum = 0;

        for (uint32_t r = 0; r < world; r++)
            sum += (double)value_of(r, i);
        if (!(sum - (double)values[1 + i] <= 1e-3 && (double)values[1 + i] - sum <= 1e-3)) {
            (void)dprintf(out, "f32 %zu of %zu: %g, want %g\n", i, count, (double)values[1 + i],
                          sum);
            rc = 1;
        }
    }
    if (!(values[0] == 77.0F && values[count + 1] == 77.0F))
        rc = 1;
    (void)dprintf(out, "%zu %016llx\n", count,
                  (unsigned long long)fold(values + 1, count * sizeof *values));
    free(values);
    return rc;
}

static int reduce_f64(struct comm *comm, uint32_t rank, uint32_t world, int out, size_t count)
{
    double *values = malloc((count + 1) * sizeof *values);
    struct err err;
    int rc = 0;

    for (size_t i = 0; i < count; i++)
        values[i] = (double)value_of(rank, i);
    MUST(comm_all_reduce_sum_f64(comm, values, count, &err));
    for (size_t i = 0; i < count && rc == 0; i++) {
        double sum = 0;

        for (uint32_t r = 0; r < world; r++)
            sum += (double)value_of(r, i);
        if (!(sum - values[i] <= 1e-9 && values[i] - sum <= 1e-9))
            rc = 1;
    }
    free(values);
    return rc;
}

static int reduce_member(struct comm *comm, uint32_t rank, uint32_t world, int out, void *user)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 1000, 4097, 1000000};

    (void)user;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (reduce_f32(comm, rank, world, out, counts[i]) != 0 ||
            reduce_f64(comm, rank, world, out, counts[i] / 3) != 0)
            return 1;
    return 0;
}

static void check_reduce(uint32_t world)
{
    struct group first = group_of(world, reduce_member, NULL);
    struct group second = group_of(world, reduce_member, NULL);

    group_run(&first);
    group_run(&second);
    for (uint32_t i = 0; i < world; i++) {
        CHECK_STR(first.texts[i], first.texts[0]);  /* every rank has the same bits */
        CHECK_STR(second.texts[i], first.texts[0]); /* and every run */
    }
}

TEST(all_reduce_of_1)
{
    check_reduce(1);
}

TEST(all_reduce_of_2)
{
    check_reduce(2);
}

TEST(all_reduce_of_3)
{
    check_reduce(3);
}

TEST(all_reduce_of_4)
{
    check_reduce(4);
}

TEST(all_reduce_of_8)
{
    check_reduce(8);
}

static int broadcast_member(struct comm *comm, uint32_t rank, uint32_t world, int out, void *user)
{
    static const size_t sizes[] = {0, 1, 13, 65537, 3000000};
    struct err err;

    (void)user;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        uint8_t *bytes = malloc(sizes[s] + 1);

        for (uint32_t root = 0; root < world; root++) {
            memset(bytes, (int)rank, sizes[s]);
            for (size_t i = 0; rank == root && i < sizes[s]; i++)
                bytes[i] = (uint8_t)(i * 7 + root + 1);
            MUST(comm_broadcast(comm, bytes, sizes[s], root, &err));
            for (size_t i = 0; i < sizes[s]; i++)
                if (bytes[i] != (uint8_t)(i * 7 + root + 1))
                    return 1;
        }
        free(bytes);
    }
    return 0;
}

/* Sends from each root to every set of ranks (the bits of `set`), listed in another order than by
 * rank; ranks outside the set get nothing. */
static int multicast_member(struct comm *comm, uint32_t rank, uint32_t world, int out, void *user)
{
    static const size_t sizes[] = {0, 1, 65537};
    uint8_t *bytes = malloc(sizes[2]);
    struct err err;

    (void)user;
    for (uint32_t turn = 0; turn < 3U * world << world; turn++) {
        const size_t size = sizes[turn % 3];
        const uint32_t root = turn / 3 % world, set = turn / 3 / world;
        uint32_t ranks[GROUP_WORLD_MAX], count = 1;
        bool gets = rank == root;

        ranks[0] = root;
        for (uint32_t i = 1; i < world; i++)
            if ((set >> (root + world - i) % world & 1) != 0)
                ranks[count++] = (root + world - i) % world;
        for (uint32_t i = 0; i < count; i++)
            gets = gets || ranks[i] == rank;
        for (size_t i = 0; i < size; i++)
            bytes[i] = rank == root ? (uint8_t)(i * 7 + turn) : 0xee;
        MUST(comm_multicast(comm, bytes, size, ranks, count, &err));
        for (size_t i = 0; i < size; i++)
            if (bytes[i] != (gets ? (uint8_t)(i * 7 + turn) : 0xee))
                return 1;
    }
    free(bytes);
    return 0;
}

TEST(multicast_reaches_whom_it_names)
{
    for (uint32_t world = 1; world <= 5; world++) {
        struct group group = group_of(world, multicast_member, NULL);

        group_run(&group);
    }
}

static int gather_member(struct comm *comm, uint32_t rank, uint32_t world, int out, void *user)
{
    static const size_t sizes[] = {0, 1, 33, 100001};
    struct err err;

    (void)user;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        uint8_t *mine = malloc(sizes[s] + 1);
        uint8_t *all = malloc(sizes[s] * world + 1);

        for (size_t i = 0; i < sizes[s]; i++)
            mine[i] = (uint8_t)(i * 3 + rank);
        MUST(comm_all_gather(comm, mine, sizes[s], all, &err));
        for (size_t i = 0; i < sizes[s] * world; i++)
            if (all[i] != (uint8_t)(i % sizes[s] * 3 + i / sizes[s]))
                return 1;
        free(mine);
        free(all);
        MUST(comm_barrier(comm, &err));
    }
    return 0;
}

TEST(broadcast_and_all_gather)
{
    for (uint32_t world = 1; world <= 5; world++) {
        struct group broadcasts = group_of(world, broadcast_member, NULL);
        struct group gathers = group_of(world, gather_member, NULL);

        group_run(&broadcasts);
        group_run(&gathers);
    }
}

/* No rank passes a barrier before the last one has come: rank 0 notes that it comes, and the others
 * check that after the barrier. */
static int barrier_member(struct comm *comm, uint32_t rank, uint32_t world, int out, void *user)
{
    volatile uint32_t *come = user; /* shared memory */
    struct err err;

    for (uint32_t round = 1; round <= 200; round++) {
        (void)__atomic_add_fetch(come, 1, __ATOMIC_SEQ_CST);
        MUST(comm_barrier(comm, &err));
        if (__atomic_load_n(come, __ATOMIC_SEQ_CST) < round * world) {
            (void)dprintf(out, "rank %u passed barrier %u too early\n", rank, round);
            return 1;
        }
        MUST(comm_barrier(comm, &err));
    }
    return 0;
}

TEST(barrier_holds_everybody)
{
    uint32_t *come =
        mmap(NULL, sizeof *come, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct group group = group_of(4, barrier_member, come);

    CHECK(come != MAP_FAILED);
    group_run(&group);
    CHECK_EQ(*come, 800);
    (void)munmap(come, sizeof *come);
}

/* Calls that do not match give an error, not a hang or a wrong sum. */
static int mismatch_member(struct comm *comm, uint32_t rank, uint32_t world, int out, void *user)
{
    float values[64] = {0};
    struct err err = {.text = ""};
    enum status status = comm_all_reduce_sum(comm, values, rank == 1 ? 64 : 32, &err);

    (void)world;
    (void)user;
    (void)dprintf(out, "%s: %s\n", status_name(status), err.text);
    return status == STATUS_OK ? 1 : 0;
}

TEST(sizes_that_differ_are_an_error)
{
    struct group group = group_of(2, mismatch_member, NULL);

    group_run(&group);
    CHECK(strstr(group.texts[0], "CONFLICT: rank 1 ") == group.texts[0] ||
          strstr(group.texts[1], "CONFLICT: rank 0 ") == group.texts[1]);
}

TEST_MAIN
