/* NVML, loaded at run time: the few functions that launcherd needs, and the query of one GPU. No
 * library is linked and no header of NVML is needed. Every call may hang on a broken GPU or driver,
 * so only the threads of gpu_watch make them. */
#ifndef LAUNCHERD_GPU_NVML_H
#define LAUNCHERD_GPU_NVML_H

#include <stdint.h>

#include "common/status.h"
#include "launcherd/core/gpu_facts.h"
#include "launcherd/gpu/gauges.h"

/* Declarations of NVML. Source: NVIDIA's NVML API reference (docs.nvidia.com/deploy/nvml-api),
 * "Structs", "Enums", "Event Handling Methods". The ABI is stable: a new version of a function gets
 * a new name. */
struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_process { /* nvmlProcessInfo_t, of the calls that end in _v2 and _v3 */
    unsigned pid;
    unsigned long long bytes; /* UINT64_MAX: not known */
    unsigned gpu_instance, compute_instance;
};
struct nvml_utilization {
    unsigned gpu, memory; /* percent of the last sample period */
};
struct nvml_event {
    void *device;
    unsigned long long type, data; /* data: the number of a critical Xid */
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
#define NVML_MIG_ENABLED 1u
#define NVML_EVENT_XID 0x8ull

/* One loaded library. Functions that a driver may lack are NULL in that case. */
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
    int (*get_mig)(void *device, unsigned *current, unsigned *pending);
    int (*get_name)(void *device, char *name, unsigned name_bytes);
    int (*get_uuid)(void *device, char *uuid, unsigned uuid_bytes);
    int (*get_utilization)(void *device, struct nvml_utilization *utilization);
    int (*get_temperature)(void *device, int sensor, unsigned *celsius);
    int (*get_power)(void *device, unsigned *milliwatts);
    int (*get_power_limit)(void *device, unsigned *milliwatts);
    int (*get_persistence)(void *device, unsigned *mode);
    int (*get_throttle)(void *device, unsigned long long *reasons);
    int (*get_pcie_width)(void *device, unsigned *lanes);
    int (*get_pcie_width_max)(void *device, unsigned *lanes);
    int (*get_retire_pending)(void *device, unsigned *is_pending);
    int (*get_link)(void *device, unsigned link, unsigned *is_up);
    int (*get_driver)(char *version, unsigned version_bytes);
    int (*get_cuda)(int *version);
    const char *(*error_text)(int code);
    int (*events_new)(void **set);
    int (*events_register)(void *device, unsigned long long types, void *set);
    int (*events_wait)(void *set, struct nvml_event *event, unsigned timeout_ms);
    int (*events_free)(void *set);
};

/* Loads the library and finds its functions, without initialising it. STATUS_NOT_FOUND: there is no
 * library, so no NVIDIA driver. STATUS_LIBRARY: a function is missing that every NVML has. */
enum status nvml_load(struct nvml *nvml, struct err *err);
void nvml_unload(struct nvml *nvml);
/* The text of an error; never NULL, printable. */
const char *nvml_error_text(const struct nvml *nvml, int code);
/* Queries GPU `index`. `facts` must be zeroed. Fills all facts except `asked_us`; after an error or in
 * MIG mode only some. If more than `bytes_max` is used and NVML names no process, looks for processes
 * that have the device file open. */
void nvml_look(const struct nvml *nvml, uint32_t index, uint64_t bytes_max,
               struct gpu_facts *facts);
/* Reads the gauges of GPU `index`. A value that the driver does not have is GAUGE_UNKNOWN. After an
 * error the values are unchanged. `now_us`: boot clock, stored as read_us. */
void nvml_gauges(const struct nvml *nvml, uint32_t index, uint64_t now_us,
                 struct gpu_gauges *gauges);

/* The health of a GPU. A value that this GPU or driver does not report is GAUGE_UNKNOWN. */
struct nvml_health {
    int64_t retire_pending, has_persistence;
    int64_t throttle; /* bits: nvmlClocksThrottleReasons */
    int64_t pcie_width, pcie_width_max;
    int64_t links_up, links_down; /* NVLinks */
};
void nvml_health(const struct nvml *nvml, uint32_t index, struct nvml_health *health);
/* The driver's version, and the newest CUDA that it supports: 1000 major + 10 minor;
 * GAUGE_UNKNOWN: not known. */
int64_t nvml_driver(const struct nvml *nvml, char *version, size_t version_bytes);

#endif
