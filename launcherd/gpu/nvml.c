#include "launcherd/gpu/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "common/nvml_library.h"
#include "launcherd/gpu/gpu_holders.h"

#define UNCORRECTED 1 /* nvmlMemoryErrorType_t */
#define VOLATILE 0    /* nvmlEccCounterType_t: since the driver was loaded */
#define LIST_MAX 512u /* processes of one kind in one answer */

/* ISO C cannot convert an object pointer to a function pointer; POSIX allows it for dlsym. */
static bool find(const struct nvml *nvml, const char *name, void *function)
{
    void *symbol = dlsym(nvml->library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Finds the newest version that this driver has; all versions fill the same struct. */
static void find_processes(const struct nvml *nvml, const char *base, void *function)
{
    char name[80];
    (void)snprintf(name, sizeof name, "%s_v3", base);
    if (find(nvml, name, function))
        return;
    (void)snprintf(name, sizeof name, "%s_v2", base);
    (void)find(nvml, name, function);
}

static void find_health(struct nvml *nvml)
{
    (void)find(nvml, "nvmlDeviceGetPersistenceMode", &nvml->get_persistence);
    (void)find(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", &nvml->get_throttle);
    (void)find(nvml, "nvmlDeviceGetCurrPcieLinkWidth", &nvml->get_pcie_width);
    (void)find(nvml, "nvmlDeviceGetMaxPcieLinkWidth", &nvml->get_pcie_width_max);
    (void)find(nvml, "nvmlDeviceGetRetiredPagesPendingStatus", &nvml->get_retire_pending);
    (void)find(nvml, "nvmlDeviceGetNvLinkState", &nvml->get_link);
    (void)find(nvml, "nvmlSystemGetDriverVersion", &nvml->get_driver);
    (void)find(nvml, "nvmlSystemGetCudaDriverVersion_v2", &nvml->get_cuda);
}

enum status nvml_load(struct nvml *nvml, struct err *err)
{
    memset(nvml, 0, sizeof *nvml);
    nvml->library = dlopen(NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (nvml->library == NULL)
        return err_set(err, STATUS_NOT_FOUND, 0, "no NVIDIA driver here (%s)", NVML_LIBRARY);
    if (!find(nvml, "nvmlInit_v2", &nvml->init) || !find(nvml, "nvmlShutdown", &nvml->shut_down) ||
        !find(nvml, "nvmlDeviceGetCount_v2", &nvml->get_count) ||
        !find(nvml, "nvmlDeviceGetHandleByIndex_v2", &nvml->get_handle) ||
        !find(nvml, "nvmlDeviceGetMemoryInfo", &nvml->get_memory)) {
        nvml_unload(nvml);
        return err_set(err, STATUS_LIBRARY, 0, "%s lacks functions that any NVML has",
                       NVML_LIBRARY);
    }
    find_processes(nvml, "nvmlDeviceGetComputeRunningProcesses", &nvml->get_compute);
    find_processes(nvml, "nvmlDeviceGetMPSComputeRunningProcesses", &nvml->get_mps);
    find_processes(nvml, "nvmlDeviceGetGraphicsRunningProcesses", &nvml->get_graphics);
    (void)find(nvml, "nvmlDeviceGetTotalEccErrors", &nvml->get_ecc);
    (void)find(nvml, "nvmlDeviceGetRemappedRows", &nvml->get_rows);
    (void)find(nvml, "nvmlDeviceGetMinorNumber", &nvml->get_minor);
    (void)find(nvml, "nvmlDeviceGetMigMode", &nvml->get_mig);
    (void)find(nvml, "nvmlDeviceGetName", &nvml->get_name);
    (void)find(nvml, "nvmlDeviceGetUUID", &nvml->get_uuid);
    (void)find(nvml, "nvmlDeviceGetUtilizationRates", &nvml->get_utilization);
    (void)find(nvml, "nvmlDeviceGetTemperature", &nvml->get_temperature);
    (void)find(nvml, "nvmlDeviceGetPowerUsage", &nvml->get_power);
    (void)find(nvml, "nvmlDeviceGetEnforcedPowerLimit", &nvml->get_power_limit);
    find_health(nvml);
    (void)find(nvml, "nvmlErrorString", &nvml->error_text);
    if (!find(nvml, "nvmlEventSetCreate", &nvml->events_new) ||
        !find(nvml, "nvmlDeviceRegisterEvents", &nvml->events_register) ||
        !find(nvml, "nvmlEventSetWait_v2", &nvml->events_wait) ||
        !find(nvml, "nvmlEventSetFree", &nvml->events_free))
        nvml->events_new = NULL;
    return STATUS_OK;
}

void nvml_unload(struct nvml *nvml)
{
    if (nvml->library != NULL)
        dlclose(nvml->library);
    nvml->library = NULL;
}

const char *nvml_error_text(const struct nvml *nvml, int code)
{
    const char *text = nvml->error_text != NULL ? nvml->error_text(code) : NULL;
    return text != NULL ? text : "no description";
}

static void fail(const struct nvml *nvml, struct gpu_facts *facts, int code)
{
    facts->error = code;
    facts->is_lost = code == NVML_GPU_IS_LOST;
    facts->needs_reset = code == NVML_RESET_REQUIRED;
    gpu_printable(nvml_error_text(nvml, code), facts->error_text, sizeof facts->error_text);
}

static bool is_listed(const struct gpu_facts *facts, uint32_t pid)
{
    for (uint32_t i = 0; i < facts->process_count && i < GPU_PROCESSES_MAX; i++)
        if (facts->processes[i].pid == pid)
            return true;
    return false;
}

/* Adds the processes of one kind. A kind that the driver does not know has none. */
static int add_processes(int (*get)(void *, unsigned *, struct nvml_process *), void *device,
                         struct gpu_facts *facts)
{
    struct nvml_process list[LIST_MAX];
    unsigned count = LIST_MAX;
    if (get == NULL)
        return NVML_SUCCESS;
    int code = get(device, &count, list);
    if (code == NVML_NOT_SUPPORTED)
        return NVML_SUCCESS;
    if (code != NVML_SUCCESS && code != NVML_INSUFFICIENT_SIZE)
        return code;
    for (unsigned i = 0; i < count && i < LIST_MAX && code == NVML_SUCCESS; i++) {
        if (is_listed(facts, list[i].pid))
            continue;
        if (facts->process_count < GPU_PROCESSES_MAX)
            facts->processes[facts->process_count] =
                (struct gpu_process){.pid = list[i].pid, .bytes = list[i].bytes};
        facts->process_count++;
    }
    if (code == NVML_INSUFFICIENT_SIZE) /* there are more than LIST_MAX: the first ones are
                                         * enough */
        facts->process_count += count;
    return NVML_SUCCESS;
}

static void look_at_health(const struct nvml *nvml, void *device, struct gpu_facts *facts)
{
    unsigned correctable, uncorrectable, is_pending = 0, has_failed = 0;
    unsigned long long errors = 0;
    if (nvml->get_ecc != NULL &&
        nvml->get_ecc(device, UNCORRECTED, VOLATILE, &errors) == NVML_SUCCESS) {
        facts->has_ecc = true;
        facts->ecc_uncorrected = errors;
    }
    if (nvml->get_rows != NULL && nvml->get_rows(device, &correctable, &uncorrectable, &is_pending,
                                                 &has_failed) == NVML_SUCCESS) {
        facts->remap_pending = is_pending != 0;
        facts->remap_failed = has_failed != 0;
    }
}

static void look_for_openers(const struct nvml *nvml, void *device, struct gpu_facts *facts)
{
    unsigned minor = facts->slot;
    char path[64];
    if (nvml->get_minor != NULL)
        (void)nvml->get_minor(device, &minor);
    (void)snprintf(path, sizeof path, "/dev/nvidia%u", minor);
    facts->opener_count = gpu_openers_find(path, facts->openers, GPU_OPENERS_MAX);
}

/* A GPU without MIG answers NOT_SUPPORTED. */
static bool has_mig(const struct nvml *nvml, void *device)
{
    unsigned current = 0, pending = 0;
    return nvml->get_mig != NULL && nvml->get_mig(device, &current, &pending) == NVML_SUCCESS &&
           current == NVML_MIG_ENABLED;
}

void nvml_look(const struct nvml *nvml, uint32_t index, uint64_t bytes_max, struct gpu_facts *facts)
{
    struct nvml_memory memory = {0};
    unsigned graphics_count = 0;
    void *device = NULL;

    facts->slot = index;
    int code = nvml->get_handle(index, &device);
    facts->has_mig = code == NVML_SUCCESS && has_mig(nvml, device);
    if (facts->has_mig)
        return;
    if (code == NVML_SUCCESS)
        code = nvml->get_memory(device, &memory);
    if (code == NVML_SUCCESS)
        code = add_processes(nvml->get_compute, device, facts);
    if (code == NVML_SUCCESS)
        code = add_processes(nvml->get_mps, device, facts);
    if (code != NVML_SUCCESS) {
        fail(nvml, facts, code);
        return;
    }
    facts->used_bytes = memory.used;
    if (nvml->get_graphics != NULL) {
        code = nvml->get_graphics(device, &graphics_count, NULL);
        facts->has_graphics = code == NVML_INSUFFICIENT_SIZE || graphics_count > 0;
    }
    look_at_health(nvml, device, facts);
    for (uint32_t i = 0; i < facts->process_count && i < GPU_PROCESSES_MAX; i++)
        gpu_process_describe(&facts->processes[i]);
    if (facts->process_count == 0 && facts->used_bytes > bytes_max)
        look_for_openers(nvml, device, facts);
}
