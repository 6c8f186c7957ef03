/* Kernels against their twins: the same bytes twice, one copy on the host for the twin and one on
 * the device for the kernel; poison and guards around all that is written, whole buffers compared
 * to the bit. Inputs are random: DDP_SEED=N repeats a run, the seed is printed. */
#ifndef TESTS_GPU_TWINS_H
#define TESTS_GPU_TWINS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "kernels/table.h"
#include "tests/lib/test.h"
#include "worker/backend/cuda/module.h"

#define TWINS_GUARD 256 /* bytes on both sides */
#define TWINS_POISON                                                                               \
    0x7b /* as f32 1.3e36, as half 61,000: an element that was not written is far off */

/* The device; NULL before twins_need_device. */
extern const struct cuda_module *twins_device;

/* Opens the device, or skips the running test with the reason why there is none. */
void twins_need_device(void);

/* Random bits; a float in [-1, 1); a number below n. */
uint64_t draw_u64(void);
float draw(void);
uint32_t draw_below(uint32_t n);

struct twins {
    uint8_t *host_base;
    uint8_t *device_base;
    void *host, *device; /* what kernels get, `byte_count` behind it */
    size_t byte_count;
};

/* `skew` bytes off a 256-byte address, poisoned on both sides. */
struct twins twins_new(size_t byte_count, size_t skew);
void twins_free(struct twins *twins);
/* What the host has goes to the device, guards included. */
void twins_upload(const struct twins *twins);
/* Fails unless everything is equal, guards and untouched elements too. */
void twins_compare(const struct twins *twins, const char *what);

size_t type_bytes(enum kernel_type type);
/* [count] random values in [-scale, scale), rounded to the type, on both sides. */
struct twins twins_random(enum kernel_type type, size_t count, size_t skew, float scale);
/* [byte_count] given bytes on both sides. */
struct twins twins_of(const void *bytes, size_t byte_count);
struct twins twins_zeros(size_t byte_count);

/* The rates on both sides, by the kernel and its twin, and compared. */
struct twins twins_rates(const struct kernel_rates *values);

/* Runs kernel_NAME(...) on the default stream, which must be the last argument, and waits. */
#define RUN(name, ...)                                                                             \
    do {                                                                                           \
        struct err run_err_;                                                                       \
        CHECK_EQ(KERNEL(twins_device->kernel, name)(__VA_ARGS__, NULL), 0);                        \
        if (twins_device->sync(&run_err_) != STATUS_OK)                                            \
            FAIL("%s: %s", #name, run_err_.text);                                                  \
    } while (0)

#endif
