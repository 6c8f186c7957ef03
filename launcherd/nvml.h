/* NVML, loaded where it is there: the few calls that launcherd makes, and one look at one GPU.
 * Nothing is linked against it and its header is not needed. Every call may hang on a broken GPU or
 * driver: only gpu_watch's threads make them. */
#ifndef LAUNCHERD_NVML_H
#define LAUNCHERD_NVML_H

#include <stdint.h>

#include "common/status.h"
#include "launcherd/gpu_facts.h"

#define NVML_NAME "libnvidia-ml.so.1"

/* As NVML declares them. Source: NVIDIA's NVML API reference (docs.nvidia.com/deploy/nvml-api):
 * "Structs", "Enums", "Event Handling Methods"; the ABI is stable, new forms get new names. */
struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_process { /* nvmlProcessInfo_t, of the calls that end in _v2 and _v3 */
    unsigned pid;
    unsigned long long bytes; /* all ones: not known */
    unsigned gpu_instance, compute_instance;
};
struct nvml_event {
    void *device;
    unsigned long long type, data; /* of a critical Xid: its number */
    unsigned gpu_instance, compute_instance;
};
enum {
    NVML_SUCCESS = 0,
    NVML_NOT_SUPPORTED = 3,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_TIMEOUT = 10,
    NVML_GPU_IS_LOST = 15,
    NVML_RESET_REQUIRED = 16,
};
#define NVML_EVENT_XID 0x8ull

/* One loaded library. Functions that a driver may lack are NULL then. */
struct nvml {
    void *library;
    int (*init)(void);
    int (*shut_down)(void);
    int (*get_count)(unsigned *count);
    int (*get_handle)(unsigned index, void **device);
    int (*get_memory)(void *device, struct nvml_memory *memory);
    int (*get_compute)(void *device, unsigned *count, struct nvml_process *processes);
    int (*get_mps)(void *device, unsigned *count, struct nvml_process *processes);
    int (*get_graphics)(void *device, unsigned *count, struct nvml_process *processes);
    int (*get_ecc)(void *device, int error_type, int counter_type, unsigned long long *count);
    int (*get_rows)(void *device, unsigned *correctable, unsigned *uncorrectable,
                    unsigned *is_pending, unsigned *has_failed);
    int (*get_minor)(void *device, unsigned *minor);
    const char *(*error_text)(int code);
    int (*events_new)(void **set);
    int (*events_register)(void *device, unsigned long long types, void *set);
    int (*events_wait)(void *set, struct nvml_event *event, unsigned timeout_ms);
    int (*events_free)(void *set);
};

/* Loads the library and finds its functions; it is not initialised. STATUS_NOT_FOUND: there is none
 * (no NVIDIA driver); STATUS_LIBRARY: it lacks what any NVML has. */
enum status nvml_load(struct nvml *nvml, struct err *err);
void nvml_unload(struct nvml *nvml);
/* Never NULL, printable. */
const char *nvml_error_words(const struct nvml *nvml, int code);
/* One look at GPU `index`; openers are looked for where more than `bytes_max` are used and no
 * process is named. All but `asked_us` is filled. */
void nvml_look(const struct nvml *nvml, uint32_t index, uint64_t bytes_max,
               struct gpu_facts *facts);

#endif
