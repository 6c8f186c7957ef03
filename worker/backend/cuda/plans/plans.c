/* A set from open to close. The libraries are loaded here; candidates are built in plan_build.c,
 * timed in plan_tune.c and queued in plan_run.c. */
#include "worker/backend/cuda/plans/plans.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fnv.h"
#include "worker/backend/cuda/plans/internal.h"

#define WORKSPACE_LIMIT ((size_t)1 << 30)
#define CANDIDATES 8
#define DESCRIPTION_BYTES_MAX 16384

static void set_close(struct plan_set **set);

/* A device's description in one string; malloc'ed. */
static enum status read_description(const char *path, char **json, struct err *err)
{
    FILE *file = fopen(path, "rbe");
    size_t got;

    if (file == NULL)
        return err_set(err, STATUS_NOT_FOUND, 0, "description of a device: cannot open %s", path);
    *json = calloc(1, DESCRIPTION_BYTES_MAX + 1);
    got = *json != NULL ? fread(*json, 1, DESCRIPTION_BYTES_MAX, file) : 0;
    (void)fclose(file);
    if (got > 0 && got < DESCRIPTION_BYTES_MAX)
        return STATUS_OK;
    free(*json);
    *json = NULL;
    return err_set(err, STATUS_BAD_INPUT, 0, "description of a device: %s is empty or too long",
                   path);
}

/* Tells device descriptions apart in the cache. */
static uint64_t hash(const char *text)
{
    return fnv_add(FNV_START, text, strlen(text));
}

/* The number of multiprocessors in a description; 0: it has none. */
static int32_t processors_in(const char *json)
{
    static const char name[] = "\"multiProcessorCount\":";
    const char *at = strstr(json, name);

    return at != NULL ? (int32_t)strtol(at + sizeof name - 1, NULL, 10) : 0;
}

static enum status open_described(struct plan_set *set, const char *path, struct err *err)
{
    char *json = NULL;
    enum status status = read_description(path, &json, err);

    if (status == STATUS_OK)
        status = cudnn_device_open(&set->cudnn, 0, json, &set->target.device, err);
    if (status == STATUS_OK)
        (void)snprintf(set->device_key, sizeof set->device_key, "cudnn %zu description %016llx",
                       set->cudnn.GetVersion(), (unsigned long long)hash(json));
    if (status == STATUS_OK)
        set->processors = processors_in(json);
    free(json);
    return status;
}

static enum status open_real(struct plan_set *set, uint32_t index, struct err *err)
{
    struct plan_device device;
    enum status status = plan_device_open(index, &device, err);
    cudnnStatus_t code;
    cublasStatus_t lt_code;

    if (status != STATUS_OK)
        return status;
    code = set->cudnn.Create(&set->handle);
    if (code != CUDNN_STATUS_SUCCESS) {
        set->handle = NULL;
        return err_set(err, STATUS_UNSUPPORTED, (int)code, "cuDNN on device %u (%s): %s", index,
                       device.name, set->cudnn.GetErrorString(code));
    }
    lt_code = set->lt.Create(&set->lt_handle);
    if (lt_code != CUBLAS_STATUS_SUCCESS) {
        set->lt_handle = NULL;
        return err_set(err, STATUS_UNSUPPORTED, (int)lt_code, "cublasLt on device %u (%s): %s",
                       index, device.name, set->lt.GetStatusString(lt_code));
    }
    set->has_device = true;
    set->device_index = index;
    set->processors = device.processors;
    (void)snprintf(set->device_key, sizeof set->device_key, "cudnn %zu device %s sm_%d with %d",
                   set->cudnn.GetVersion(), device.name, device.capability, device.processors);
    return cudnn_device_open(&set->cudnn, index, NULL, &set->target.device, err);
}

static void take_options(struct plan_set *set, const struct plan_options *options)
{
    char why[320];

    set->target = (struct cudnn_target){
        .api = &set->cudnn,
        .deterministic = options->deterministic,
        .tf32 = options->tf32,
        .workspace_limit =
            options->workspace_limit != 0 ? options->workspace_limit : WORKSPACE_LIMIT,
    };
    set->candidates = options->candidates != 0 ? options->candidates : CANDIDATES;
    if (options->deterministic || options->device_file != NULL)
        set->candidates = 1; /* times differ from run to run; without a device there are none */
    if (set->candidates > CUDNN_CANDIDATES_MAX)
        set->candidates = CUDNN_CANDIDATES_MAX;
    set->threads = options->threads;
    set->spared_sms = options->spared_sms;
    set->note = options->note;
    set->note_user = options->note_user;
    if (!plan_cache_open(&set->cache, options->cache_folder, why, sizeof why) && set->note != NULL)
        set->note(set->note_user, why);
}

static enum status set_open(struct plan_set **out, const struct plan_options *options,
                            struct err *err)
{
    struct plan_set *set = calloc(1, sizeof *set);
    enum status status;

    *out = NULL;
    if (set == NULL)
        return err_set(err, STATUS_MEMORY, 0, "plans: out of memory");
    (void)pthread_mutex_init(&set->lock, NULL);
    status = libs_cudnn(options->cudnn_name, &set->cudnn, err);
    if (status == STATUS_OK)
        status = libs_cublaslt(options->cublaslt_name, &set->lt, err);
    if (status == STATUS_OK) {
        take_options(set, options);
        status = options->device_file != NULL ? open_described(set, options->device_file, err)
                                              : open_real(set, options->device_index, err);
    }
    if (status != STATUS_OK)
        set_close(&set);
    *out = set;
    return status;
}

static void close_plan(struct plan_set *set, struct plan *plan)
{
    if (plan->pack != NULL)
        (void)set->cudnn.BackendDestroyDescriptor(plan->pack);
    for (uint32_t i = 0; i < CUDNN_CANDIDATES_MAX; i++)
        cudnn_plan_close(&set->cudnn, &plan->candidates[i]);
    lt_plan_close(&set->lt, &plan->lt);
}

static void set_close(struct plan_set **set)
{
    if (*set == NULL)
        return;
    for (uint32_t i = 0; i < (*set)->count; i++)
        close_plan(*set, &(*set)->plans[i]);
    free((*set)->plans);
    if ((*set)->target.device != NULL)
        (void)(*set)->cudnn.BackendDestroyDescriptor((*set)->target.device);
    if ((*set)->lt_handle != NULL)
        (void)(*set)->lt.Destroy((*set)->lt_handle);
    if ((*set)->handle != NULL)
        (void)(*set)->cudnn.Destroy((*set)->handle);
    (void)pthread_mutex_destroy(&(*set)->lock);
    free(*set);
    *set = NULL;
}

static void describe(struct plan *plan)
{
    const struct cudnn_plan *cudnn = &plan->candidates[plan->chosen];

    if (plan->is_linear) {
        plan->info.workspace_bytes = plan->lt.algorithms[plan->chosen].workspaceSize;
        (void)snprintf(plan->info.engine, sizeof plan->info.engine, "cublasLt, algorithm %u of %u",
                       plan->chosen + 1, plan->candidate_count);
        return;
    }
    plan->info.workspace_bytes = cudnn->workspace_bytes;
    if (plan->info.from_cache)
        (void)snprintf(plan->info.engine, sizeof plan->info.engine, "cuDNN, from the cache");
    else
        (void)snprintf(plan->info.engine, sizeof plan->info.engine,
                       "cuDNN engine %lld%s, candidate %u of %u", (long long)cudnn->engine,
                       cudnn->is_compiled ? " (compiled)" : "", plan->chosen + 1,
                       plan->candidate_count);
}

/* Writes the plan into the cache, after a line with its time. */
static void write_chosen(struct plan_set *set, const struct plan *plan)
{
    char key[PLAN_CACHE_KEY_MAX], line[64];
    size_t byte_count = 0;
    char *json = cudnn_plan_write(&set->cudnn, &plan->candidates[plan->chosen], &byte_count);
    const size_t line_bytes =
        (size_t)snprintf(line, sizeof line, "time_us %.3f%s\n", (double)plan->info.time_us,
                         plan->info.spares_sms ? " spares" : "");
    char *text = json != NULL ? malloc(line_bytes + byte_count) : NULL;

    if (text != NULL) {
        memcpy(text, line, line_bytes);
        memcpy(text + line_bytes, json, byte_count);
        plan_key(set, &plan->request, key);
        (void)plan_cache_write(&set->cache, key, text, line_bytes + byte_count);
    }
    free(text);
    free(json);
}

/* Writes the chosen candidate into the cache and closes the others. */
static void keep_chosen(struct plan_set *set, struct plan *plan)
{
    const bool is_final = !plan_set_times(set) || plan->info.time_us > 0;

    if (!plan->is_linear && !plan->info.from_cache && is_final && set->cache.folder[0] != '\0')
        write_chosen(set, plan);
    for (uint32_t i = 0; i < plan->candidate_count && !plan->is_linear; i++)
        if (i != plan->chosen)
            cudnn_plan_close(&set->cudnn, &plan->candidates[i]);
}

static void report_damage(const struct plan_set *set)
{
    char text[768];

    if (set->damaged_count == 0 || set->note == NULL)
        return;
    (void)snprintf(text, sizeof text,
                   "%u plans in %s are damaged or of another build: made anew and replaced",
                   set->damaged_count, set->cache.folder);
    set->note(set->note_user, text);
}

static enum status set_build(struct plan_set *set, const struct plan_request *requests,
                             uint32_t count, struct err *err)
{
    enum status status;

    assert(set->plans == NULL); /* only once for a set */
    set->plans = calloc((size_t)count + 1, sizeof *set->plans);
    if (set->plans == NULL)
        return err_set(err, STATUS_MEMORY, 0, "plans: out of memory");
    set->count = count;
    for (uint32_t i = 0; i < count; i++)
        set->plans[i].request = requests[i];
    status = plan_build_all(set, err);
    if (status == STATUS_OK && set->has_device)
        status = plan_tune_all(set, err);
    for (uint32_t i = 0; i < count && status == STATUS_OK; i++) {
        struct plan *plan = &set->plans[i];

        if (plan->built_as == i && plan->info.status == STATUS_OK) {
            describe(plan);
            keep_chosen(set, plan);
        } else if (plan->built_as != i) {
            plan->info = set->plans[plan->built_as].info;
        }
    }
    report_damage(set);
    return status;
}

static const struct plan_info *set_info(const struct plan_set *set, uint32_t index)
{
    assert(index < set->count);
    return &set->plans[index].info;
}

static enum status set_run(struct plan_set *set, uint32_t index, struct CUstream_st *stream,
                           void *workspace, void *const *pointers, struct err *err)
{
    struct plan *plan = &set->plans[index];

    assert(index < set->count && plan->info.status == STATUS_OK && set->has_device);
    return plan_queue(set, plan, set->plans[plan->built_as].chosen, stream, workspace, pointers,
                      err);
}

const struct cuda_plans cuda_plans = {
    .open = set_open,
    .close = set_close,
    .build = set_build,
    .info = set_info,
    .run = set_run,
};
