/* Plans of the net, one set for each batch size, which is kept. The first one is built when the net is made. That of the
 * smaller last batch of an epoch is built on a thread while the first steps run; it never delays them, and what it lacks
 * is waited for only when that batch comes. Other sizes are built when they first occur.
 *
 * Candidates are timed when the net is made, in the first set: later the device is busy, and times mean nothing. */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/io/mono.h"
#include "common/log.h"
#include "worker/backend/cuda/exec/internal.h"

/* plan_list does not know how a flattened image is stored. */
static void adapt(const struct cuda *cuda, struct plan_request *request)
{
    const struct cuda_layer *layer = &cuda->layers[request->layer];

    if (layer->in[0]->planes > 1)
        request->c = (uint32_t)layer->in[0]->image_size;
    if (layer->in[0]->planes > 1 && layer->graph->op == GRAPH_BATCH_NORM)
        request->k = request->c;
}

static enum status grow_workspace(struct cuda *cuda, size_t bytes, struct err *err)
{
    enum status status;

    if (bytes <= cuda->workspace_bytes)
        return STATUS_OK;
    assert(cuda->mode == CUDA_EAGER);                       /* no allocation during a capture */
    status = cuda->runtime->stream_sync(cuda->stream, err); /* after this the old one is unused */
    if (status != STATUS_OK)
        return status;
    cuda->runtime->memory_free(&cuda->workspace);
    cuda->bytes -= cuda->workspace_bytes;
    cuda->workspace_bytes = 0;
    for (uint32_t i = 0; i < CUDA_STEPS_MAX; i++) { /* graphs hold the old address */
        cuda->runtime->graph_free(&cuda->steps[i].graph);
        cuda->steps[i] = (struct cuda_step){0};
    }
    status = cuda->runtime->memory_new(&cuda->workspace, bytes, err);
    if (status == STATUS_OK) {
        cuda->workspace_bytes = bytes;
        cuda->bytes += bytes;
    }
    return status;
}

static enum status take_infos(struct cuda *cuda, struct cuda_set *set,
                              const struct plan_request *requests, uint32_t count, struct err *err)
{
    size_t workspace = 0;

    for (size_t i = 0; i < (size_t)cuda->graph->layer_count * PLAN_KINDS; i++)
        set->index[i] = -1;
    for (uint32_t i = 0; i < count; i++) {
        const struct plan_info *info = cuda->plans->info(set->plans, i);

        *cuda_plan_entry(cuda, set, requests[i].layer, requests[i].kind) = (int32_t)i;
        if (info->status == STATUS_OK && info->workspace_bytes > workspace)
            workspace = info->workspace_bytes;
    }
    return grow_workspace(cuda, workspace, err);
}

/* Lists the data gradients to which another reader of the convolution's input contributed first;
 * their plans add, some a gradient under its mask. */
static uint32_t list_additions(const struct cuda *cuda, const struct plan_request *from,
                               uint32_t count, struct plan_request *requests)
{
    uint32_t added = 0;

    if (cuda->evaluate_only)
        return 0;
    for (uint32_t i = 0; i < cuda->graph->layer_count && from == NULL; i++)
        if (cuda->graph->layers[i].op == GRAPH_CONV2D && cuda->layers[i].adds[0])
            added += cuda->layers[i].masked_by != NULL ? 2 : 1;
    for (uint32_t i = 0; from != NULL && i < count; i++) {
        if (from[i].kind != PLAN_CONV_DGRAD || !cuda->layers[from[i].layer].adds[0])
            continue;
        requests[added] = from[i];
        requests[added++].kind = PLAN_CONV_DGRAD_ADD;
        if (cuda->layers[from[i].layer].masked_by == NULL)
            continue;
        requests[added] = from[i];
        requests[added].if_timed = !cuda->options.masked_plans;
        requests[added++].kind = PLAN_CONV_DGRAD_MASKED;
    }
    return added;
}

/* A batch norm has our own kernels too. Its plans are compiled, which takes cuDNN a fifth of a second each on an H100, so
 * they are there only where they were measured to be faster. */
static bool has_choice(const struct cuda *cuda, const struct plan_request *request)
{
    return (request->kind == PLAN_NORM_FORWARD || request->kind == PLAN_NORM_BACKWARD) &&
           cuda_norms_compare(cuda);
}

/* Those of plan_list without the plans that no step would run. */
static uint32_t list_used(const struct cuda *cuda, bool is_first, uint32_t count,
                          struct plan_request *requests)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct plan_request *request = &requests[i];

        if (has_choice(cuda, request) && !is_first && !cuda->layers[request->layer].uses_plans)
            continue;
        request->if_timed = has_choice(cuda, request) && is_first;
        requests[kept++] = *request;
    }
    return kept;
}

/* Where they are compared with others, only what was timed: these are compiled, too. */
static uint32_t list_statistics(const struct cuda *cuda, uint32_t n, struct plan_request *requests)
{
    const uint32_t count =
        plan_list_statistics(cuda->graph, n, cuda->options.stats >= CUDA_STATS_PROLOGUE, requests);

    for (uint32_t i = 0; i < count && requests != NULL; i++)
        requests[i].if_timed = cuda_norms_compare(cuda);
    return count;
}

/* With requests NULL: no fewer than there will be. */
static uint32_t list_requests(const struct cuda *cuda, uint32_t n, bool is_first,
                              struct plan_request *requests)
{
    uint32_t count = plan_list(cuda->graph, n, cuda->evaluate_only, requests);

    if (requests != NULL)
        count = list_used(cuda, is_first, count, requests);

    count += list_additions(cuda, requests, count, requests != NULL ? requests + count : NULL);
    if (cuda_stats_requested(cuda) && (is_first || !cuda_norms_compare(cuda)))
        count += list_statistics(cuda, n, requests != NULL ? requests + count : NULL);
    for (uint32_t i = 0; i < count && requests != NULL; i++)
        adapt(cuda, &requests[i]);
    return count;
}

/* What plans say of their cache and of the device. Every set says it again: only what is new is
 * logged. */
static void log_note(void *user, const char *text)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* replicas have a thread each */
    static char last[768];
    bool is_new;

    (void)user;
    (void)pthread_mutex_lock(&lock);
    is_new = strcmp(last, text) != 0;
    (void)snprintf(last, sizeof last, "%s", text);
    (void)pthread_mutex_unlock(&lock);
    if (is_new)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "%s", text);
}

static void show_progress(void *user, enum plan_phase phase, uint32_t done, uint32_t total)
{
    struct cuda_set *set = user;

    plan_progress_show(&set->progress, phase, done, total);
}

static bool stops(void *user)
{
    return ((const struct cuda_set *)user)->stops;
}

/* Whether candidates of this set are timed. */
static bool is_tuned(const struct cuda *cuda, const struct cuda_set *set)
{
    return cuda->tune_us > 0 && (set == cuda->sets || cuda->tune_us == NET_TUNE_ALL);
}

/* The set whose handles this one uses; NULL: it opens its own. */
static struct plan_set *set_to_share(const struct cuda *cuda, const struct cuda_set *set)
{
    if (set != cuda->sets)
        return cuda->sets[0].plans;
    return cuda->options.shared_index == cuda->options.device_index ? cuda->options.shared : NULL;
}

static enum status describe_set(struct cuda *cuda, struct cuda_set *set, uint32_t n,
                                bool in_background, struct err *err)
{
    const bool is_first = set == cuda->sets;
    const struct plan_options options = {
        .device_index = cuda->options.device_index,
        .deterministic = cuda->deterministic,
        .tf32 = cuda->tf32,
        .candidates = cuda->options.candidates,
        .tune_us = is_tuned(cuda, set) ? cuda->tune_us : 0,
        .tunes_cold = cuda->tunes_cold,
        .in_background = in_background,
        .shares = set_to_share(cuda, set),
        .spared_sms = cuda->collective_sms,
        .note = log_note,
        .progress = in_background ? NULL : show_progress,
        .stops = stops,
        .note_user = set,
    };

    set->n = n;
    set->requests =
        calloc((size_t)list_requests(cuda, n, is_first, NULL) + 1, sizeof *set->requests);
    set->index = calloc((size_t)cuda->graph->layer_count * PLAN_KINDS, sizeof *set->index);
    set->forms = calloc(cuda->graph->layer_count, sizeof *set->forms);
    if (set->requests == NULL || set->index == NULL || set->forms == NULL)
        return cuda_out_of_memory(NULL, err);
    set->request_count = list_requests(cuda, n, is_first, set->requests);
    return cuda->plans->open(&set->plans, &options, err);
}

/* What a start took its time for, if it built or timed anything. */
static void report(const struct cuda *cuda, const struct cuda_set *set)
{
    struct plan_counts counts;
    char later[64] = "";

    cuda->plans->counts(set->plans, &counts);
    if (counts.built + counts.tuned == 0)
        return;
    if (counts.untimed > 0)
        (void)snprintf(later, sizeof later, "; %u have no time yet (--tune)", counts.untimed);
    log_line(LOG_INFO, LOG_ABOUT_NONE,
             "batch %u: %u plans, %u from the cache, %u built in %.1f s, %u timed in %.1f s%s",
             set->n, counts.plans, counts.from_cache, counts.built, (double)counts.build_us * 1e-6,
             counts.tuned, (double)counts.tune_us * 1e-6, later);
}

/* What is left of the time for our own kernels. */
static void begin_own_times(struct cuda *cuda)
{
    struct plan_counts counts;

    cuda->plans->counts(cuda->set->plans, &counts);
    cuda->time_until_us = 0;
    if (!counts.may_time)
        return;
    if (cuda->tune_us == NET_TUNE_ALL)
        cuda->time_until_us = UINT64_MAX;
    else if (counts.tune_us < cuda->tune_us)
        cuda->time_until_us = mono_us() + cuda->tune_us - counts.tune_us;
}

/* When the set's plans are built. */
static enum status finish_set(struct cuda *cuda, struct cuda_set *set, struct err *err)
{
    enum status status = take_infos(cuda, set, set->requests, set->request_count, err);

    free(set->requests);
    set->requests = NULL;
    if (status != STATUS_OK)
        return status;
    report(cuda, set);
    if (is_tuned(cuda, set))
        begin_own_times(cuda);
    cuda_stats_choose(cuda);
    set->is_ready = true;
    return STATUS_OK;
}

static void *build_on_thread(void *user)
{
    struct cuda_set *set = user;
    const struct cuda_plans *plans = set->builds_by;

    set->built.status = plans->build(set->plans, set->requests, set->request_count, &set->built);
    return NULL;
}

static void join_builder(struct cuda_set *set)
{
    if (set->has_builder)
        (void)pthread_join(set->builder, NULL);
    set->has_builder = false;
}

static enum status build_set(struct cuda *cuda, struct cuda_set *set, uint32_t n, struct err *err)
{
    enum status status;

    if (set->has_builder) {
        join_builder(set);
        status = set->built.status;
        if (status != STATUS_OK)
            return err_set(err, status, set->built.code, "%s", set->built.text);
    } else {
        status = describe_set(cuda, set, n, false, err);
        if (status == STATUS_OK)
            status = cuda->plans->build(set->plans, set->requests, set->request_count, err);
    }
    return status == STATUS_OK ? finish_set(cuda, set, err) : status;
}

static void close_set(struct cuda *cuda, struct cuda_set *set)
{
    set->stops = true;
    join_builder(set);
    if (set->plans != NULL)
        cuda->plans->close(&set->plans);
    free(set->requests);
    free(set->index);
    free(set->forms);
    *set = (struct cuda_set){0};
}

/* The set of this size, or an unused one; NULL: all have other sizes. */
static struct cuda_set *find_set(struct cuda *cuda, uint32_t n)
{
    for (uint32_t i = 0; i < CUDA_SETS_MAX; i++)
        if (cuda->sets[i].n == n || cuda->sets[i].n == 0)
            return &cuda->sets[i];
    return NULL;
}

enum status cuda_sets_use(struct cuda *cuda, uint32_t n, struct err *err)
{
    struct cuda_set *set = find_set(cuda, n);
    enum status status;

    assert(n > 0 && n <= cuda->batch_max);
    if (set == NULL)
        return err_set(err, STATUS_TOO_BIG, 0,
                       "a batch of %u images: there have been %d other sizes, and each needs its "
                       "own plans",
                       n, CUDA_SETS_MAX);
    cuda->set = set;
    if (set->is_ready)
        return STATUS_OK;
    status = build_set(cuda, set, n, err);
    if (status != STATUS_OK)
        close_set(cuda, set);
    return status;
}

void cuda_sets_begin(struct cuda *cuda, uint32_t n)
{
    struct cuda_set *set = find_set(cuda, n);
    struct err ignored;

    if (set == NULL || set->n != 0)
        return;
    assert(cuda->sets[0].is_ready);
    set->builds_by = cuda->plans;
    if (describe_set(cuda, set, n, true, &ignored) == STATUS_OK)
        set->has_builder = pthread_create(&set->builder, NULL, build_on_thread, set) == 0;
    if (!set->has_builder)
        close_set(cuda, set); /* when the size occurs, it is tried again */
}

/* The first set's handles are those of the others. */
void cuda_sets_close(struct cuda *cuda)
{
    for (uint32_t i = CUDA_SETS_MAX; i-- > 0;)
        close_set(cuda, &cuda->sets[i]);
    cuda->runtime->memory_free(&cuda->workspace);
}
