/* Measures our own kernels on this device; the times of plans are measured when they are built
 * (plan_tune.c). Times a captured graph of ten runs, so that the launch rate does not count, and
 * takes the better of two replays. If anything fails, the time is unknown; this has no other
 * effect. Times are kept in the plans' cache, so a start measures only what is new, and only as long
 * as net_options.tune_us lasts. */
#include <stdlib.h>
#include <string.h>

#include "common/io/mono.h"
#include "worker/backend/cuda/exec/internal.h"

#define RUNS 10
#define PASSES 2
#define PIECE ((size_t)1 << 20) /* bytes of random values, copied over the whole memory */

/* splitmix64 (Steele, Lea, Flood 2014) */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15U;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
}

/* Random values between -1 and 1 of the type: on constant data a GPU takes less power, and its
 * clock is higher than in training. */
static void fill_piece(void *piece, enum graph_dtype type)
{
    uint64_t state = 1;

    for (size_t i = 0; i < PIECE / graph_dtype_bytes(type); i++) {
        const float value = (float)(int32_t)(draw(&state) >> 40) * 0x1p-23F - 1.0F;

        cuda_narrow(&value, type, 1, (char *)piece + i * graph_dtype_bytes(type));
    }
}

enum status cuda_measure_memory(struct cuda *cuda, enum graph_dtype type, size_t bytes,
                                void **memory, struct err *err)
{
    const struct cuda_runtime *runtime = cuda->runtime;
    void *pinned = NULL;
    size_t done = bytes < PIECE ? bytes : PIECE;
    enum status status = runtime->memory_new(memory, bytes, err);

    if (status == STATUS_OK)
        status = runtime->pinned_new(&pinned, PIECE, err);
    if (status == STATUS_OK) {
        fill_piece(pinned, type);
        status = runtime->queue_copy_in(*memory, pinned, done, cuda->stream, err);
    }
    while (status == STATUS_OK && done < bytes) {
        const size_t more = done < bytes - done ? done : bytes - done;

        status = runtime->queue_copy((char *)*memory + done, *memory, more, cuda->stream, err);
        done += more;
    }
    if (status == STATUS_OK)
        status = runtime->stream_sync(cuda->stream, err);
    runtime->pinned_free(&pinned);
    if (status != STATUS_OK)
        runtime->memory_free(memory);
    return status;
}

static enum status capture(struct cuda *cuda, cuda_measured run, void *user,
                           struct CUgraphExec_st **graph, struct err *err)
{
    struct err ignored;
    enum status status = cuda->runtime->capture_begin(cuda->stream, err), ended;

    if (status != STATUS_OK)
        return status;
    for (int i = 0; i < RUNS && status == STATUS_OK; i++)
        status = run(cuda, user, err);
    ended = cuda->runtime->capture_end(cuda->stream, graph, status == STATUS_OK ? err : &ignored);
    return status == STATUS_OK ? ended : status;
}

static enum status replay(struct cuda *cuda, struct CUgraphExec_st *graph,
                          struct CUevent_st *events[2], double *us, struct err *err)
{
    enum status status = cuda->runtime->event_record(events[0], cuda->stream, err);

    if (status == STATUS_OK)
        status = cuda->runtime->queue_graph(graph, cuda->stream, err);
    if (status == STATUS_OK)
        status = cuda->runtime->event_record(events[1], cuda->stream, err);
    if (status == STATUS_OK)
        status = cuda->runtime->event_sync(events[1], err);
    return status == STATUS_OK ? cuda->runtime->event_elapsed(events[0], events[1], us, err)
                               : status;
}

float cuda_measure_us(struct cuda *cuda, cuda_measured run, void *user)
{
    struct CUevent_st *events[2] = {NULL, NULL};
    struct CUgraphExec_st *graph = NULL;
    struct err ignored;
    double us = 0, best = 0;
    enum status status = run(cuda, user, &ignored); /* loads the kernels */

    if (status == STATUS_OK)
        status = cuda->runtime->event_new_timed(&events[0], &ignored);
    if (status == STATUS_OK)
        status = cuda->runtime->event_new_timed(&events[1], &ignored);
    if (status == STATUS_OK)
        status = capture(cuda, run, user, &graph, &ignored);
    for (int i = 0; i < 1 + PASSES && status == STATUS_OK; i++) { /* the first one warms up */
        status = replay(cuda, graph, events, &us, &ignored);
        if (i > 0 && (best == 0 || us < best))
            best = us;
    }
    cuda->runtime->graph_free(&graph);
    cuda->runtime->event_free(&events[0]);
    cuda->runtime->event_free(&events[1]);
    return status == STATUS_OK ? (float)(best / RUNS) : 0.0F;
}

float cuda_time_once(struct cuda *cuda, const char *name, float (*measure)(struct cuda *, void *),
                     void *user)
{
    float us = cuda->plans->time_read(cuda->set->plans, name);

    if (us > 0.0F || mono_us() >= cuda->time_until_us)
        return us;
    us = measure(cuda, user);
    if (us > 0.0F)
        cuda->plans->time_write(cuda->set->plans, name, us);
    return us;
}
