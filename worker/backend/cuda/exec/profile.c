#include "worker/backend/cuda/exec/profile.h"

#include <assert.h>
#include <stdlib.h>

#include "worker/backend/cuda/exec/internal.h"
#include "worker/net/profile.h"

enum { PARTS_A_STEP = 16 }; /* some occur more than once */

/* A piece of work in progress, between two events. */
struct span {
    struct CUevent_st *begin, *end;
    struct CUstream_st *stream;
    uint32_t entry;
};

/* Entries: forward of every layer, backward of every layer, parts. */
struct cuda_profile {
    bool is_on;
    struct span *spans;
    uint32_t span_count, used;
    bool is_open; /* the last used span is open */
    uint64_t *ns, *calls;
    uint32_t entry_count;
};

enum status cuda_profile_open(struct cuda *cuda, struct err *err)
{
    const uint32_t layers = cuda->graph->layer_count;
    struct cuda_profile *profile = calloc(1, sizeof *profile);
    enum status status = STATUS_OK;

    cuda->profile = profile;
    if (profile == NULL)
        return cuda_out_of_memory(NULL, err);
    profile->is_on = true;
    profile->entry_count = 2 * layers + CUDA_PARTS;
    profile->span_count = 2 * layers + cuda->graph->bucket_count + PARTS_A_STEP;
    profile->spans = calloc(profile->span_count, sizeof *profile->spans);
    profile->ns = calloc(profile->entry_count, sizeof *profile->ns);
    profile->calls = calloc(profile->entry_count, sizeof *profile->calls);
    if (profile->spans == NULL || profile->ns == NULL || profile->calls == NULL)
        return cuda_out_of_memory(NULL, err);
    for (uint32_t i = 0; i < profile->span_count && status == STATUS_OK; i++) {
        status = cuda->runtime->event_new_timed(&profile->spans[i].begin, err);
        if (status == STATUS_OK)
            status = cuda->runtime->event_new_timed(&profile->spans[i].end, err);
    }
    return status;
}

void cuda_profile_close(struct cuda *cuda)
{
    struct cuda_profile *profile = cuda->profile;

    if (profile == NULL)
        return;
    for (uint32_t i = 0; profile->spans != NULL && i < profile->span_count; i++) {
        cuda->runtime->event_free(&profile->spans[i].begin);
        cuda->runtime->event_free(&profile->spans[i].end);
    }
    free(profile->spans);
    free(profile->ns);
    free(profile->calls);
    free(profile);
    cuda->profile = NULL;
}

bool cuda_profile_is_on(const struct cuda *cuda)
{
    return cuda->profile != NULL && cuda->profile->is_on;
}

void cuda_profile_set(void *state, bool is_on)
{
    struct cuda *cuda = state;

    if (cuda->profile == NULL)
        return;
    cuda_profile_collect(cuda);
    cuda->profile->is_on = is_on;
}

static void begin(struct cuda *cuda, uint32_t entry, struct CUstream_st *stream)
{
    struct cuda_profile *profile = cuda->profile;
    struct span *span;
    struct err err;

    assert(!profile->is_open);
    if (profile->used == profile->span_count)
        cuda_profile_collect(cuda);
    span = &profile->spans[profile->used++];
    span->entry = entry;
    span->stream = stream;
    profile->is_open = true;
    cuda_keep(cuda, cuda->runtime->event_record(span->begin, stream, &err), &err);
}

void cuda_profile_layer(struct cuda *cuda, uint32_t layer, bool is_backward)
{
    if (cuda_profile_is_on(cuda))
        begin(cuda, layer + (is_backward ? cuda->graph->layer_count : 0), cuda->stream);
}

void cuda_profile_part(struct cuda *cuda, enum cuda_part part, struct CUstream_st *stream)
{
    if (cuda_profile_is_on(cuda))
        begin(cuda, 2 * cuda->graph->layer_count + part, stream);
}

void cuda_profile_end(struct cuda *cuda)
{
    struct cuda_profile *profile = cuda->profile;
    struct span *span;
    struct err err;

    if (profile == NULL || !profile->is_open)
        return;
    span = &profile->spans[profile->used - 1];
    profile->is_open = false;
    cuda_keep(cuda, cuda->runtime->event_record(span->end, span->stream, &err), &err);
}

/* Waits for the stream, then for the end of each piece: copies and reductions are on other
 * streams. */
static enum status collect(struct cuda *cuda, struct err *err)
{
    struct cuda_profile *profile = cuda->profile;
    enum status status = cuda->runtime->stream_sync(cuda->stream, err);

    for (uint32_t i = 0; i < profile->used && status == STATUS_OK; i++) {
        const struct span *span = &profile->spans[i];
        double us = 0.0;

        status = cuda->runtime->event_sync(span->end, err);
        if (status == STATUS_OK)
            status = cuda->runtime->event_elapsed(span->begin, span->end, &us, err);
        profile->ns[span->entry] += (uint64_t)(us * 1e3);
        profile->calls[span->entry]++;
    }
    return status;
}

void cuda_profile_collect(struct cuda *cuda)
{
    struct err err;

    if (!cuda_profile_is_on(cuda) || cuda->profile->used == 0)
        return;
    assert(!cuda->profile->is_open);
    cuda_keep(cuda, collect(cuda, &err), &err);
    cuda->profile->used = 0;
}

static void describe_part(enum cuda_part part, struct net_profile *profile)
{
    static const struct {
        const char *words;
        enum net_phase phase;
        bool is_beside;
    } parts[CUDA_PARTS] = {
        [CUDA_PART_COPY] = {"copy to the device", NET_PHASE_INPUT, true},
        [CUDA_PART_IMAGES] = {"images", NET_PHASE_INPUT, false},
        [CUDA_PART_REDUCE] = {"reduction", NET_PHASE_REDUCE, true},
        [CUDA_PART_JOIN] = {"reduction, waited for", NET_PHASE_REDUCE, false},
        [CUDA_PART_FINITE] = {"finite check", NET_PHASE_OPTIMIZER, false},
        [CUDA_PART_CLIP] = {"clipping", NET_PHASE_OPTIMIZER, false},
        [CUDA_PART_UPDATE] = {"optimizer", NET_PHASE_OPTIMIZER, false},
        [CUDA_PART_SCALER] = {"loss scaler", NET_PHASE_OPTIMIZER, false},
    };

    *profile = (struct net_profile){.layer = parts[part].words,
                                    .work = "step",
                                    .index = GRAPH_NONE,
                                    .phase = parts[part].phase,
                                    .is_beside = parts[part].is_beside};
}

bool cuda_profile_entry(const void *state, uint32_t index, struct net_profile *profile)
{
    const struct cuda *cuda = state;
    const uint32_t layers = cuda->graph->layer_count;

    if (cuda->profile == NULL || index >= cuda->profile->entry_count)
        return false;
    if (index < 2 * layers)
        *profile = (struct net_profile){
            .layer = cuda->layers[index % layers].graph->name,
            .work = index < layers ? "forward" : "backward",
            .index = index % layers,
            .phase = index < layers ? NET_PHASE_FORWARD : NET_PHASE_BACKWARD,
        };
    else
        describe_part((enum cuda_part)(index - 2 * layers), profile);
    profile->ns = cuda->profile->ns[index];
    profile->calls = cuda->profile->calls[index];
    return true;
}
