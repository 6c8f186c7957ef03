/* Plans of the net, one set for each batch size. A set is built when its size first occurs (the
 * last batch of an epoch may be smaller), and kept. */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
 * their plans add. */
static uint32_t list_additions(const struct cuda *cuda, const struct plan_request *from,
                               uint32_t count, struct plan_request *requests)
{
    uint32_t added = 0;

    if (cuda->evaluate_only)
        return 0;
    for (uint32_t i = 0; i < cuda->graph->layer_count && from == NULL; i++)
        added += cuda->graph->layers[i].op == GRAPH_CONV2D && cuda->layers[i].adds[0];
    for (uint32_t i = 0; from != NULL && i < count; i++)
        if (from[i].kind == PLAN_CONV_DGRAD && cuda->layers[from[i].layer].adds[0]) {
            requests[added] = from[i];
            requests[added++].kind = PLAN_CONV_DGRAD_ADD;
        }
    return added;
}

static uint32_t list_requests(const struct cuda *cuda, uint32_t n, struct plan_request *requests)
{
    uint32_t count = plan_list(cuda->graph, n, cuda->evaluate_only, requests);

    count += list_additions(cuda, requests, count, requests != NULL ? requests + count : NULL);
    if (cuda_stats_requested(cuda))
        count += plan_list_statistics(cuda->graph, n, cuda->options.stats >= CUDA_STATS_PROLOGUE,
                                      requests != NULL ? requests + count : NULL);
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

static enum status make_set(struct cuda *cuda, struct cuda_set *set, uint32_t n, struct err *err)
{
    const struct plan_options options = {
        .device_index = cuda->options.device_index,
        .deterministic = cuda->deterministic,
        .tf32 = cuda->tf32,
        .candidates = cuda->options.candidates,
        .spared_sms = cuda->collective_sms,
        .note = log_note,
    };
    uint32_t count = list_requests(cuda, n, NULL);
    struct plan_request *requests = calloc((size_t)count + 1, sizeof *requests);
    enum status status = STATUS_OK;

    set->index = calloc((size_t)cuda->graph->layer_count * PLAN_KINDS, sizeof *set->index);
    set->forms = calloc(cuda->graph->layer_count, sizeof *set->forms);
    if (requests == NULL || set->index == NULL || set->forms == NULL)
        status = cuda_out_of_memory(NULL, err);
    if (status == STATUS_OK)
        status = cuda->plans->open(&set->plans, &options, err);
    if (status == STATUS_OK) {
        (void)list_requests(cuda, n, requests);
        status = cuda->plans->build(set->plans, requests, count, err);
    }
    if (status == STATUS_OK)
        status = take_infos(cuda, set, requests, count, err);
    if (status == STATUS_OK)
        cuda_stats_choose(cuda);
    free(requests);
    return status;
}

static void close_set(struct cuda *cuda, struct cuda_set *set)
{
    if (set->plans != NULL)
        cuda->plans->close(&set->plans);
    free(set->index);
    free(set->forms);
    *set = (struct cuda_set){0};
}

enum status cuda_sets_use(struct cuda *cuda, uint32_t n, struct err *err)
{
    struct cuda_set *set = cuda->sets;
    enum status status;

    assert(n > 0 && n <= cuda->batch_max);
    while (set < cuda->sets + CUDA_SETS_MAX && set->n != 0 && set->n != n)
        set++;
    if (set == cuda->sets + CUDA_SETS_MAX)
        return err_set(err, STATUS_TOO_BIG, 0,
                       "a batch of %u images: there have been %d other sizes, and each needs its "
                       "own plans",
                       n, CUDA_SETS_MAX);
    cuda->set = set;
    if (set->n == n)
        return STATUS_OK;
    status = make_set(cuda, set, n, err);
    if (status != STATUS_OK) {
        close_set(cuda, set);
        return status;
    }
    set->n = n;
    return STATUS_OK;
}

void cuda_sets_close(struct cuda *cuda)
{
    for (uint32_t i = 0; i < CUDA_SETS_MAX; i++)
        close_set(cuda, &cuda->sets[i]);
    cuda->runtime->memory_free(&cuda->workspace);
}
