/* A libnvidia-ml.so.1 for machines without a GPU: the functions that launcherd calls, with the ABI
 * of NVIDIA's documentation. It answers from the file $STAND_IN_NVML, which the test rewrites and
 * which is read at every call. Its lines, in any order:
 *   gpus N                     how many GPUs there are
 *   init CODE                  nvmlInit_v2 returns this error
 *   hang                       no call returns while this line is there
 *   memory GPU MIB             memory in use
 *   process GPU PID MIB        a compute process; MIB -1: not known
 *   graphics GPU PID           a display server
 *   error GPU CODE             every query of this GPU returns this error
 *   ecc GPU COUNT              uncorrected errors since the driver was loaded
 *   rows GPU PENDING FAILED    row remapping, 0 or 1
 *   gauges GPU UTIL C MW LIMIT utilisation in percent, temperature, power and its limit in mW; without this
 *                              line the GPU does not tell them
 *   health GPU PERSISTENCE THROTTLE LANES LANES_MAX RETIRE LINKS_UP LINKS_DOWN
 *                              as NVML gives them; without this line the GPU does not tell them
 *   mig GPU MODE               MIG mode: 1 is on; without this line the GPU has none
 *   xid SERIAL GPU NUMBER      an Xid event, reported once, in the order of SERIAL */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "launcherd/gpu/nvml.h"

#define GPUS_MAX 16
#define TEXT_MAX 65536u
#define EXPORT __attribute__((visibility("default")))
#define INVALID_ARGUMENT 2

static char devices[GPUS_MAX]; /* the handles: addresses of these */
static int last_serial;        /* of Xids; one thread waits for them */

static void pause_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&pause, NULL);
}

/* The current content of the file; nothing while the test is replacing it. */
static void read_once(char *text)
{
    const char *path = getenv("STAND_IN_NVML");
    FILE *file = path != NULL ? fopen(path, "re") : NULL;
    size_t length = file != NULL ? fread(text, 1, TEXT_MAX - 1, file) : 0;
    text[length] = '\0';
    if (file != NULL)
        (void)fclose(file);
}

/* The next line that begins with `word`, its numbers in `numbers`; NULL: there is none. */
static const char *next_line(const char *at, const char *word, int *numbers, int count)
{
    size_t length = strlen(word);
    while (at != NULL && *at != '\0') {
        const char *line = at;
        const char *end = strchr(at, '\n');
        at = end != NULL ? end + 1 : at + strlen(at);
        if (strncmp(line, word, length) != 0 || (line[length] != ' ' && line[length] != '\n'))
            continue;
        char *rest;
        line += length;
        for (int i = 0; i < count; i++, line = rest)
            numbers[i] = (int)strtol(line, &rest, 10);
        return at;
    }
    return NULL;
}

/* Called first by every function. */
static char *script(void)
{
    char *text = malloc(TEXT_MAX);
    if (text == NULL)
        abort();
    read_once(text);
    while (next_line(text, "hang", NULL, 0) != NULL) {
        pause_ms(10);
        read_once(text);
    }
    return text;
}

/* The last of `count` numbers of the line `word GPU ...`; `otherwise` where there is none. */
static int value_of(const char *text, const char *word, int gpu, int count, int otherwise)
{
    int numbers[8];
    for (const char *at = text; (at = next_line(at, word, numbers, count)) != NULL;)
        if (numbers[0] == gpu)
            return numbers[count - 1];
    return otherwise;
}

static int gpu_of(const void *device)
{
    return (int)((const char *)device - devices);
}

static int gpus_in(const char *text)
{
    int count = 0;
    (void)next_line(text, "gpus", &count, 1);
    return count < GPUS_MAX ? count : GPUS_MAX;
}

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetCount_v2(unsigned *count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct nvml_memory *memory);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count,
                                                   struct nvml_process *processes);
EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count,
                                                    struct nvml_process *processes);
EXPORT int nvmlDeviceGetTotalEccErrors(void *device, int error_type, int counter_type,
                                       unsigned long long *count);
EXPORT int nvmlDeviceGetRemappedRows(void *device, unsigned *correctable, unsigned *uncorrectable,
                                     unsigned *is_pending, unsigned *has_failed);
EXPORT int nvmlDeviceGetName(void *device, char *name, unsigned name_bytes);
EXPORT int nvmlDeviceGetUUID(void *device, char *uuid, unsigned uuid_bytes);
EXPORT int nvmlDeviceGetUtilizationRates(void *device, struct nvml_utilization *utilization);
EXPORT int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
EXPORT int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
EXPORT int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts);
EXPORT int nvmlDeviceGetMinorNumber(void *device, unsigned *minor);
EXPORT int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending);
EXPORT const char *nvmlErrorString(int code);
EXPORT int nvmlEventSetCreate(void **set);
EXPORT int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set);
EXPORT int nvmlEventSetWait_v2(void *set, struct nvml_event *event, unsigned timeout_ms);
EXPORT int nvmlEventSetFree(void *set);

EXPORT int nvmlDeviceGetPersistenceMode(void *device, unsigned *mode);
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons);
EXPORT int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *lanes);
EXPORT int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *lanes);
EXPORT int nvmlDeviceGetRetiredPagesPendingStatus(void *device, unsigned *is_pending);
EXPORT int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *is_up);
EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned version_bytes);
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version);

int nvmlDeviceGetName(void *device, char *name, unsigned name_bytes)
{
    int written = snprintf(name, name_bytes, "Stand-in GPU");
    (void)device;
    return written < (int)name_bytes ? NVML_SUCCESS : NVML_INSUFFICIENT_SIZE;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned uuid_bytes)
{
    int written =
        snprintf(uuid, uuid_bytes, "GPU-%08d-0000-0000-0000-000000000000", gpu_of(device));
    return written < (int)uuid_bytes ? NVML_SUCCESS : NVML_INSUFFICIENT_SIZE;
}

/* The number at this place of a line about the GPU. */
static int number_of(const void *device, const char *word, int place, unsigned *value)
{
    char *text = script();
    int found = value_of(text, word, gpu_of(device), place, -1);
    free(text);
    *value = found < 0 ? 0 : (unsigned)found;
    return found < 0 ? NVML_NOT_SUPPORTED : NVML_SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, struct nvml_utilization *utilization)
{
    utilization->memory = 0;
    return number_of(device, "gauges", 2, &utilization->gpu);
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    return sensor == 0 ? number_of(device, "gauges", 3, celsius) : INVALID_ARGUMENT;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    return number_of(device, "gauges", 4, milliwatts);
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts)
{
    return number_of(device, "gauges", 5, milliwatts);
}

int nvmlDeviceGetPersistenceMode(void *device, unsigned *mode)
{
    return number_of(device, "health", 2, mode);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    unsigned bits;
    int code = number_of(device, "health", 3, &bits);
    *reasons = bits;
    return code;
}

int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *lanes)
{
    return number_of(device, "health", 4, lanes);
}

int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *lanes)
{
    return number_of(device, "health", 5, lanes);
}

int nvmlDeviceGetRetiredPagesPendingStatus(void *device, unsigned *is_pending)
{
    return number_of(device, "health", 6, is_pending);
}

/* The first links are up, the next ones down, and there are no more. */
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *is_up)
{
    unsigned up, down;
    if (number_of(device, "health", 7, &up) != NVML_SUCCESS ||
        number_of(device, "health", 8, &down) != NVML_SUCCESS)
        return NVML_NOT_SUPPORTED;
    *is_up = link < up;
    return link < up + down ? NVML_SUCCESS : INVALID_ARGUMENT;
}

int nvmlSystemGetDriverVersion(char *version, unsigned version_bytes)
{
    int written = snprintf(version, version_bytes, "570.00");
    free(script());
    return written < (int)version_bytes ? NVML_SUCCESS : NVML_INSUFFICIENT_SIZE;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    free(script());
    *version = 12080;
    return NVML_SUCCESS;
}

int nvmlInit_v2(void)
{
    char *text = script();
    int code = NVML_SUCCESS;
    (void)next_line(text, "init", &code, 1);
    free(text);
    return code;
}

int nvmlShutdown(void)
{
    free(script());
    return NVML_SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    char *text = script();
    *count = (unsigned)gpus_in(text);
    free(text);
    return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    char *text = script();
    bool is_there = (int)index < gpus_in(text);
    *device = is_there ? &devices[index] : NULL;
    free(text);
    return is_there ? NVML_SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetMemoryInfo(void *device, struct nvml_memory *memory)
{
    char *text = script();
    int code = value_of(text, "error", gpu_of(device), 2, NVML_SUCCESS);
    int mib = value_of(text, "memory", gpu_of(device), 2, 0);
    free(text);
    memory->total = 80ull << 30;
    memory->used = (unsigned long long)mib << 20;
    memory->free = memory->total - memory->used;
    return code;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count,
                                            struct nvml_process *processes)
{
    char *text = script();
    unsigned found = 0;
    int numbers[3];
    for (const char *at = text; (at = next_line(at, "process", numbers, 3)) != NULL;) {
        if (numbers[0] != gpu_of(device))
            continue;
        if (found < *count)
            processes[found] = (struct nvml_process){
                .pid = (unsigned)numbers[1],
                .bytes = numbers[2] < 0 ? ULLONG_MAX : (unsigned long long)numbers[2] << 20,
                .gpu_instance = UINT_MAX,
                .compute_instance = UINT_MAX};
        found++;
    }
    free(text);
    int code = found > *count ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
    *count = found;
    return code;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count,
                                             struct nvml_process *processes)
{
    char *text = script();
    bool has_one = value_of(text, "graphics", gpu_of(device), 2, -1) >= 0;
    int code = has_one && *count == 0 ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
    free(text);
    if (has_one && *count > 0)
        processes[0] = (struct nvml_process){.pid = 1};
    *count = has_one ? 1 : 0;
    return code;
}

int nvmlDeviceGetTotalEccErrors(void *device, int error_type, int counter_type,
                                unsigned long long *count)
{
    char *text = script();
    int errors = value_of(text, "ecc", gpu_of(device), 2, -1);
    free(text);
    if (error_type != 1 || counter_type != 0)
        return INVALID_ARGUMENT;
    *count = (unsigned long long)errors;
    return errors < 0 ? NVML_NOT_SUPPORTED : NVML_SUCCESS;
}

int nvmlDeviceGetRemappedRows(void *device, unsigned *correctable, unsigned *uncorrectable,
                              unsigned *is_pending, unsigned *has_failed)
{
    char *text = script();
    *is_pending = (unsigned)value_of(text, "rows", gpu_of(device), 2, 0);
    *has_failed = (unsigned)value_of(text, "rows", gpu_of(device), 3, 0);
    *correctable = *uncorrectable = 0;
    free(text);
    return NVML_SUCCESS;
}

int nvmlDeviceGetMinorNumber(void *device, unsigned *minor)
{
    *minor = (unsigned)gpu_of(device);
    return NVML_SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    char *text = script();
    int mode = value_of(text, "mig", gpu_of(device), 2, -1);
    free(text);
    *current = *pending = mode > 0;
    return mode < 0 ? NVML_NOT_SUPPORTED : NVML_SUCCESS;
}

const char *nvmlErrorString(int code)
{
    return code == NVML_GPU_IS_LOST ? "GPU is lost" : "Unknown Error";
}

int nvmlEventSetCreate(void **set)
{
    *set = devices;
    return NVML_SUCCESS;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set)
{
    return set == devices && gpu_of(device) < GPUS_MAX && types == NVML_EVENT_XID
               ? NVML_SUCCESS
               : INVALID_ARGUMENT;
}

int nvmlEventSetWait_v2(void *set, struct nvml_event *event, unsigned timeout_ms)
{
    if (set != devices)
        return INVALID_ARGUMENT;
    for (unsigned waited_ms = 0; waited_ms < timeout_ms; waited_ms += 10) {
        char *text = script();
        int numbers[3];
        for (const char *at = text; (at = next_line(at, "xid", numbers, 3)) != NULL;) {
            if (numbers[0] <= last_serial)
                continue;
            last_serial = numbers[0];
            *event = (struct nvml_event){.device = &devices[numbers[1]],
                                         .type = NVML_EVENT_XID,
                                         .data = (unsigned long long)numbers[2]};
            free(text);
            return NVML_SUCCESS;
        }
        free(text);
        pause_ms(10);
    }
    return NVML_TIMEOUT;
}

int nvmlEventSetFree(void *set)
{
    return set == devices ? NVML_SUCCESS : INVALID_ARGUMENT;
}
