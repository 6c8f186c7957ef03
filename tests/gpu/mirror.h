/* Kernels against their references. A mirror is the same bytes twice: on the host for the reference,
 * on the device for the kernel. Guards surround both and outputs begin poisoned, so that what was
 * written outside or left out is found; whole buffers are compared to the bit. Inputs are random:
 * the seed is printed, DDP_SEED=N repeats a run. */
#ifndef TESTS_GPU_MIRROR_H
#define TESTS_GPU_MIRROR_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "kernels/table.h"
#include "tests/lib/test.h"
#include "worker/backend/cuda/module/module.h"

#define MIRROR_GUARD 256 /* bytes on both sides */
#define MIRROR_POISON                                                                              \
    0x7b /* as f32 1.3e36, as half 61,000: an element that was not written is far off */

/* The device; NULL before mirror_need_device. */
extern const struct cuda_module *mirror_device;

/* Opens the device, or skips the running test with the reason why there is none. */
void mirror_need_device(void);

/* Random bits; a float in [-1, 1); a number below n. */
uint64_t draw_u64(void);
float draw(void);
uint32_t draw_below(uint32_t n);

struct mirror {
    uint8_t *host_base;
    uint8_t *device_base;
    void *host, *device; /* what kernels get: byte_count bytes each */
    size_t byte_count;
};

/* `skew` bytes off a 256-byte address, poisoned on both sides. */
struct mirror mirror_new(size_t byte_count, size_t skew);
void mirror_free(struct mirror *mirror);
/* What the host has goes to the device, guards included. */
void mirror_upload(const struct mirror *mirror);
/* Fails unless everything is equal, guards and untouched elements too. */
void mirror_compare(const struct mirror *mirror, const char *what);

/* The same for scratch: only the guards must be untouched. */
void mirror_compare_guards(const struct mirror *mirror, const char *what);

size_t type_bytes(enum kernel_type type);
/* [count] random values in [-scale, scale), rounded to the type, on both sides. */
struct mirror mirror_random(enum kernel_type type, size_t count, size_t skew, float scale);
/* [byte_count] given bytes on both sides. */
struct mirror mirror_of(const void *bytes, size_t byte_count);
struct mirror mirror_zeros(size_t byte_count);

/* The rates on both sides, by the kernel and its reference, and compared. */
struct mirror mirror_rates(const struct kernel_rates *values);

/* Runs kernel_NAME(...) on the default stream, which must be the last argument, and waits. */
#define RUN(name, ...)                                                                             \
    do {                                                                                           \
        struct err run_err_;                                                                       \
        CHECK_EQ(KERNEL(mirror_device->kernel, name)(__VA_ARGS__, NULL), 0);                       \
        if (mirror_device->sync(&run_err_) != STATUS_OK)                                           \
            FAIL("%s: %s", #name, run_err_.text);                                                  \
    } while (0)

#endif
