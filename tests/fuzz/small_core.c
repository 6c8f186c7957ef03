#include "tests/fuzz/small_core.h"

#include <sys/mman.h>

#include "tests/fuzz/target.h"

struct rdzv *small_core_start(void)
{
    static const struct rdzv_options options = {.jobs_max = SMALL_CORE_JOBS,
                                                .nodes_max = SMALL_CORE_NODES,
                                                .lease_us = 60000000,
                                                .beat_interval_us = 1000000,
                                                .suspect_us = 5000000,
                                                .lost_us = 15000000,
                                                .waits_for_lease = true,
                                                .seed = 1,
                                                .cluster = "fuzz"};
    static void *memory;
    uint64_t byte_count = rdzv_bytes(&options);

    if (memory != NULL)
        FUZZ_CHECK(munmap(memory, byte_count) == 0);
    memory = mmap(NULL, byte_count, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    FUZZ_CHECK(memory != MAP_FAILED);
    return rdzv_init(memory, &options);
}
