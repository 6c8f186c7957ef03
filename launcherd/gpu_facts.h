/* What one look at a GPU found: between the edge that asks NVML (gpu_watch.h) and the core. */
#ifndef LAUNCHERD_GPU_FACTS_H
#define LAUNCHERD_GPU_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#define GPU_PROCESSES_MAX 16u
#define GPU_OPENERS_MAX 4u
#define GPU_BYTES_UNKNOWN UINT64_MAX

struct gpu_process {
    uint32_t pid;
    uint64_t bytes;   /* GPU_BYTES_UNKNOWN where the driver does not say */
    bool is_gone;     /* NVML names it, the kernel has no such process (any more, or not here) */
    uint64_t job_id;  /* by its environment; 0: no job's */
    char program[32]; /* of these two, "?" where they cannot be read */
    char user[32];
};

struct gpu_facts {
    uint32_t slot;
    uint64_t asked_us; /* of the question that this answers */
    int32_t error;     /* NVML's, 0: none; then nothing below is known but the next three */
    bool is_lost;      /* fallen off the bus */
    bool needs_reset;
    char error_text[64];
    uint64_t used_bytes;    /* of the device's memory, the driver's own share too */
    uint32_t process_count; /* on the device; the first GPU_PROCESSES_MAX are named */
    struct gpu_process processes[GPU_PROCESSES_MAX];
    bool has_graphics; /* a display server or the like is on it, too */
    /* Who has the device file open, looked for where memory is used and NVML names nobody (in a
     * container it does not see the others). */
    uint32_t opener_count;
    struct gpu_process openers[GPU_OPENERS_MAX];
    bool has_ecc;
    uint64_t ecc_uncorrected; /* since the driver was loaded */
    bool remap_pending, remap_failed;
};

#endif
