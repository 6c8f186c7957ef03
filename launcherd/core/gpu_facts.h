/* The answer to one question about a GPU. The edge (gpu/gpu_watch.h) fills it, and the core
 * evaluates it. */
#ifndef LAUNCHERD_CORE_GPU_FACTS_H
#define LAUNCHERD_CORE_GPU_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#define GPU_PROCESSES_MAX 16u
#define GPU_OPENERS_MAX 4u
#define GPU_BYTES_UNKNOWN UINT64_MAX

struct gpu_process {
    uint32_t pid;
    uint64_t bytes;   /* GPU_BYTES_UNKNOWN if the driver does not say */
    bool is_gone;     /* NVML names it, but the kernel has no such process: it ended, or is in
                       * another container */
    uint64_t job_id;  /* from its environment; 0: it belongs to no job */
    char program[32]; /* "?" if it cannot be read; so is `user` */
    char user[32];
};

struct gpu_facts {
    uint32_t slot;
    uint64_t asked_us; /* when the question was asked, which identifies it */
    int32_t error;     /* from NVML; 0: none. After an error only the next three fields are set */
    bool is_lost;      /* fallen off the bus */
    bool needs_reset;
    char error_text[64];
    bool has_mig;           /* the GPU is divided (MIG mode); then only this field is set */
    uint64_t used_bytes;    /* memory of the device in use, including what the driver itself uses */
    uint32_t process_count; /* on the device; the first GPU_PROCESSES_MAX are in `processes` */
    struct gpu_process processes[GPU_PROCESSES_MAX];
    bool has_graphics; /* a display server, or a similar program, also uses it */
    /* The processes that have the device file open. They are only searched for if memory is in use
     * and NVML names no process. That happens in a container, where NVML does not see processes
     * outside. */
    uint32_t opener_count;
    struct gpu_process openers[GPU_OPENERS_MAX];
    bool has_ecc;
    uint64_t ecc_uncorrected; /* since the driver was loaded */
    bool remap_pending, remap_failed;
};

#endif
