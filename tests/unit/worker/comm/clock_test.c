/* Clocks with a known offset: the measured offset is within the reported error. */
#include "worker/comm/clock.h"

#include <stdio.h>
#include <string.h>

#include "common/io/mono.h"
#include "tests/lib/test.h"
#include "tests/unit/worker/comm/crew.h"

enum { WORLD = 4 };

static const int64_t ahead_us[WORLD] = {0, 5000000, -123456, 77};

static uint64_t read_clock(void *user)
{
    return (uint64_t)((int64_t)mono_us() + *(const int64_t *)user);
}

static int measure_all(struct crew_seat *seat)
{
    int64_t ahead = 1000000000 + ahead_us[seat->rank];

    for (uint32_t peer = 1; peer < WORLD; peer++) {
        const int64_t wanted = seat->rank == peer ? -ahead_us[peer] : 0;
        struct comm_clock clock = {0};
        struct err err;
        int64_t miss;

        if (comm_clock_measure(seat->comm, seat->rank, peer, read_clock, &ahead, &clock, &err) !=
            STATUS_OK) {
            (void)snprintf(seat->text, sizeof seat->text, "%.200s", err.text);
            return 1;
        }
        miss = clock.offset_us - wanted;
        if ((miss < 0 ? -miss : miss) > (int64_t)clock.error_us + 1) {
            (void)snprintf(seat->text, sizeof seat->text, "rank %u: %lld, not %lld; error %llu",
                           seat->rank, (long long)clock.offset_us, (long long)wanted,
                           (unsigned long long)clock.error_us);
            return 1;
        }
        if (seat->rank == peer && (clock.error_us == 0 || clock.error_us > 1000000)) {
            (void)snprintf(seat->text, sizeof seat->text, "error of %llu us",
                           (unsigned long long)clock.error_us);
            return 1;
        }
    }
    return 0;
}

TEST(offsets_are_within_their_error)
{
    struct crew crew;

    crew_run(&crew, WORLD, measure_all, NULL);
    crew_check(&crew);
}

TEST_MAIN
