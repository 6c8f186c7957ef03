#include <assert.h>
#include <time.h>

#include "common/io/conn.h"

static struct timespec read_clock(clockid_t id)
{
    struct timespec now = {0};
    int rc = clock_gettime(id, &now);

    assert(rc == 0); /* both clocks always exist */
    (void)rc;
    return now;
}

uint64_t clock_boot_us(void)
{
    struct timespec now = read_clock(CLOCK_BOOTTIME);

    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

int64_t clock_wall_ms(void)
{
    struct timespec now = read_clock(CLOCK_REALTIME);

    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
