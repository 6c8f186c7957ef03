/* A set from open to close. The libraries are loaded here; engines are built in plan_build.c, chosen among in
 * plan_choose.c, timed in plan_tune.c and queued in plan_run.c. */
#include "worker/backend/cuda/plans/plans.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

/* A handle costs time and memory on the device: sets of one device have one. */
static void open_shared(struct plan_set *set, const struct plan_set *shared)
{
    assert(shared->has_device);
    set->owner = shared->owner;
    set->has_device = true;
    set->device_index = shared->device_index;
    set->processors = shared->processors;
    set->handle = shared->handle;
    set->lt_handle = shared->lt_handle;
    set->target.device = shared->target.device;
    memcpy(set->device_key, shared->device_key, sizeof set->device_key);
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
        .use_device = options->device_file == NULL ? plan_device_use : NULL,
        .device_index = options->device_index,
    };
    set->candidates = options->candidates != 0 ? options->candidates : CANDIDATES;
    if (options->deterministic || options->device_file != NULL)
        set->candidates = 1; /* times differ from run to run; without a device there are none */
    if (set->candidates > CUDNN_CANDIDATES_MAX)
        set->candidates = CUDNN_CANDIDATES_MAX;
    set->threads = options->threads;
    set->spared_sms = options->spared_sms;
    set->tune_us = options->in_background ? 0 : options->tune_us;
    set->tunes_cold = options->tunes_cold;
    set->in_background = options->in_background;
    set->note = options->note;
    set->progress = options->progress;
    set->stops = options->stops;
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
    set->owner = set;
    set->cache_lock.fd = -1;
    (void)pthread_mutex_init(&set->lock, NULL);
    (void)pthread_cond_init(&set->is_done, NULL);
    status = libs_cudnn(options->cudnn_name, &set->cudnn, err);
    if (status == STATUS_OK)
        status = libs_cublaslt(options->cublaslt_name, &set->lt, err);
    if (status == STATUS_OK) {
        take_options(set, options);
        if (options->shares != NULL)
            open_shared(set, options->shares);
        else
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
    free(plan->text);
}

static void close_handles(struct plan_set *set)
{
    if (set->owner != set)
        return;
    if (set->target.device != NULL)
        (void)set->cudnn.BackendDestroyDescriptor(set->target.device);
    if (set->lt_handle != NULL)
        (void)set->lt.Destroy(set->lt_handle);
    if (set->handle != NULL)
        (void)set->cudnn.Destroy(set->handle);
}

static void set_close(struct plan_set **out)
{
    struct plan_set *set = *out;

    if (set == NULL)
        return;
    for (uint32_t i = 0; i < set->count; i++)
        close_plan(set, &set->plans[i]);
    close_handles(set);
    free(set->plans);
    free(set->order);
    (void)pthread_cond_destroy(&set->is_done);
    (void)pthread_mutex_destroy(&set->lock);
    free(set);
    *out = NULL;
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
    status = plan_build_all(set, plan_set_name(set, requests, count), err);
    if (status == STATUS_OK)
        status = plan_choose(set, err);
    plan_lock_release(&set->cache_lock);
    for (uint32_t i = 0; i < count && status == STATUS_OK; i++) {
        struct plan *plan = &set->plans[i];

        if (plan->built_as != i)
            plan->info = set->plans[plan->built_as].info;
        else if (plan->info.status == STATUS_OK)
            describe(plan);
    }
    report_damage(set);
    return status;
}

static const struct plan_info *set_info(const struct plan_set *set, uint32_t index)
{
    assert(index < set->count);
    return &set->plans[index].info;
}

static void set_counts(const struct plan_set *set, struct plan_counts *counts)
{
    *counts = set->counts;
}

/* Kernels of another build may take other times: the name has the module's file. */
static bool name_time(const struct plan_set *set, const char *name, char key[PLAN_CACHE_KEY_MAX])
{
    struct stat file;
    Dl_info module;

    if (dladdr(&cuda_plans, &module) == 0 || stat(module.dli_fname, &file) < 0)
        return false;
    return snprintf(key, PLAN_CACHE_KEY_MAX, "%s module %lld of %lld.%09ld: %s", set->device_key,
                    (long long)file.st_size, (long long)file.st_mtim.tv_sec, file.st_mtim.tv_nsec,
                    name) < PLAN_CACHE_KEY_MAX;
}

static float set_time_read(const struct plan_set *set, const char *name)
{
    char key[PLAN_CACHE_KEY_MAX], *text = NULL;
    size_t byte_count;
    float time_us = 0;

    if (name_time(set, name, key) &&
        plan_cache_read(&set->cache, key, &text, &byte_count) == PLAN_CACHE_FOUND)
        time_us = strtof(text, NULL);
    free(text);
    return time_us > 0 ? time_us : 0;
}

static void set_time_write(struct plan_set *set, const char *name, float time_us)
{
    char key[PLAN_CACHE_KEY_MAX], text[32];
    const int bytes = snprintf(text, sizeof text, "%.3f\n", (double)time_us);

    if (name_time(set, name, key))
        (void)plan_cache_write(&set->cache, key, text, (size_t)bytes);
}

/* A run of a plan, with what it takes. */
struct run {
    struct plan *plan;
    struct CUstream_st *stream;
    void *workspace;
    void *const *pointers;
};

/* The first engine of a plan that was never timed may not run here. Then the next one that does is taken, and is kept
 * in the cache; the workspace is that of the first. */
static enum status run_another(struct plan_set *set, const struct run *run, struct err *err)
{
    struct plan *built = &set->plans[run->plan->built_as];
    struct err ignored;
    enum status status = STATUS_LIBRARY;

    plan_propose(set, built, CUDNN_CANDIDATES_MAX);
    for (uint32_t i = 0; i < built->candidate_count && status != STATUS_OK; i++) {
        if (built->candidates[i].workspace_bytes > built->info.workspace_bytes)
            continue;
        built->chosen = i;
        status =
            plan_queue(set, run->plan, i, run->stream, run->workspace, run->pointers, &ignored);
    }
    if (status != STATUS_OK)
        return err->status;
    if (set->note != NULL)
        set->note(set->note_user, err->text);
    plan_keep(set, built);
    plan_drop_others(set, built);
    return STATUS_OK;
}

static enum status set_run(struct plan_set *set, uint32_t index, struct CUstream_st *stream,
                           void *workspace, void *const *pointers, struct err *err)
{
    const struct run run = {&set->plans[index], stream, workspace, pointers};
    struct plan *built = &set->plans[run.plan->built_as];
    struct err why = {.text = ""};
    enum status status;

    assert(index < set->count && run.plan->info.status == STATUS_OK && set->has_device);
    status = plan_queue(set, run.plan, built->chosen, stream, workspace, pointers, &why);
    if (status != STATUS_OK && !built->has_run && !built->is_linear && built->info.time_us <= 0)
        status = run_another(set, &run, &why);
    built->has_run = true;
    return status == STATUS_OK ? STATUS_OK : err_set(err, status, why.code, "%s", why.text);
}

const struct cuda_plans cuda_plans = {
    .open = set_open,
    .close = set_close,
    .build = set_build,
    .info = set_info,
    .counts = set_counts,
    .time_read = set_time_read,
    .time_write = set_time_write,
    .run = set_run,
};
