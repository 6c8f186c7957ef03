/* The order in which a device may run what streams were given.
 *
 * A stream is a queue of calls, records of events, waits and launches of graphs. When the device
 * goes on, the head of one stream is taken: drawn, but for waits whose record has not run. To find
 * an order that a forgotten dependency allows, one stream is preferred for some time before another
 * is drawn, so one may fall far behind; and the device may do nothing at all until the host waits.
 *
 * Source of what is allowed: CUDA C++ Programming Guide, "Asynchronous Concurrent Execution" and
 * "CUDA Graphs", "Cross-stream Dependencies and Events", "Prohibited and Unhandled Operations". */
#include "tests/standin/cuda/streams.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { LANES_MAX = 4 };

enum kind { CALL, RECORD, WAIT, LAUNCH };

/* One record of an event. A later record of the same event is another mark. */
struct mark {
    bool is_done;
    uint64_t at_us;
    struct CUgraphExec_st *capture; /* NULL: not in a capture; only compared */
    uint32_t lane, lane_calls;      /* in a capture: where, and after how many calls */
    uint32_t references;
};

struct op {
    enum kind kind;
    void (*run)(void *args);
    void *args;
    struct mark *mark;
    struct CUgraphExec_st *graph;
    uint64_t number; /* in the order of the host */
    struct op *next;
};

struct queue {
    struct op *first, **last;
};

/* While it is captured, and then for good. Lane 0 is the stream that was begun with. */
struct CUgraphExec_st {
    struct queue lanes[LANES_MAX];
    struct CUstream_st *streams[LANES_MAX];
    uint32_t lane_calls[LANES_MAX];
    bool is_joined[LANES_MAX]; /* lane 0 waits for all of it */
    uint32_t lane_count, references;
    bool is_open, is_broken;
};

struct CUstream_st {
    struct queue queue;
    struct CUgraphExec_st *capture; /* that it is part of now; NULL */
    uint32_t lane;
    struct CUstream_st *next;
};

struct CUevent_st {
    struct mark *mark; /* of the last record; NULL */
    bool is_timed;
};

struct standin_faults standin_faults;
struct standin_counts standin_stream_counts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st *streams;
static uint64_t numbers, seed, random_state;
static bool has_seed;
static const struct op *const *favourite; /* the queue that is preferred for now */
static _Thread_local struct CUgraphExec_st *capturing;

/* -- what is drawn -- */

static uint32_t draw_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)((random_state >> 33) % n);
}

static void enter(void)
{
    const char *text = getenv("DDP_SEED");

    (void)pthread_mutex_lock(&lock);
    if (!has_seed)
        seed = random_state = text != NULL ? strtoull(text, NULL, 10) : 1;
    has_seed = true;
}

static enum status leave(enum status status)
{
    (void)pthread_mutex_unlock(&lock);
    return status;
}

/* -- queues -- */

static void queue_init(struct queue *queue)
{
    queue->first = NULL;
    queue->last = &queue->first;
}

static void push(struct queue *queue, struct op op)
{
    struct op *kept = malloc(sizeof *kept);

    assert(kept != NULL);
    *kept = op;
    kept->number = numbers++;
    kept->next = NULL;
    *queue->last = kept;
    queue->last = &kept->next;
}

static void mark_drop(struct mark *mark)
{
    if (mark != NULL && --mark->references == 0)
        free(mark);
}

static void graph_drop(struct CUgraphExec_st *graph);

static void op_free(struct op *op)
{
    free(op->args);
    mark_drop(op->mark);
    if (op->graph != NULL)
        graph_drop(op->graph);
    free(op);
}

static void graph_drop(struct CUgraphExec_st *graph)
{
    if (--graph->references > 0)
        return;
    for (uint32_t lane = 0; lane < graph->lane_count; lane++)
        for (struct op *op = graph->lanes[lane].first, *next; op != NULL; op = next) {
            next = op->next;
            op_free(op);
        }
    free(graph);
    standin_stream_counts.graphs--;
}

/* -- the device goes on -- */

static void run_graph(struct CUgraphExec_st *graph);

static void run_op(struct op *op)
{
    switch (op->kind) {
    case CALL:
        op->run(op->args);
        standin_stream_counts.runs++;
        return;
    case RECORD:
        op->mark->is_done = true;
        op->mark->at_us = standin_stream_counts.runs;
        return;
    case WAIT:
        return;
    case LAUNCH:
        run_graph(op->graph);
        return;
    }
}

static bool can_run(const struct op *op)
{
    return op != NULL && (op->kind != WAIT || op->mark->is_done);
}

/* Which of `count` queues goes on; count: none can. */
static uint32_t choose(struct op *const *const *heads, uint32_t count)
{
    uint32_t able = 0, oldest = count, preferred = count, drawn = count;

    for (uint32_t i = 0; i < count; i++) {
        const struct op *op = *heads[i];

        if (!can_run(op))
            continue;
        able++;
        if (oldest == count || op->number < (*heads[oldest])->number)
            oldest = i;
        if ((const struct op *const *)heads[i] == favourite)
            preferred = i;
        if (draw_below(able) == 0)
            drawn = i;
    }
    if (seed == 0 || able == 0)
        return oldest;
    if (preferred == count || draw_below(8) == 0) {
        favourite = (const struct op *const *)heads[drawn];
        return drawn;
    }
    return preferred;
}

/* A launch is over when all of the graph has run, in an order of its own. */
static void run_graph(struct CUgraphExec_st *graph)
{
    struct op *cursors[LANES_MAX], *const *heads[LANES_MAX] = {NULL};
    uint32_t i;

    for (i = 0; i < graph->lane_count; i++) {
        cursors[i] = graph->lanes[i].first;
        heads[i] = &cursors[i];
        for (struct op *op = cursors[i]; op != NULL; op = op->next)
            if (op->kind == RECORD)
                op->mark->is_done = false;
    }
    while ((i = choose(heads, graph->lane_count)) < graph->lane_count) {
        run_op(cursors[i]);
        cursors[i] = cursors[i]->next;
    }
    for (i = 0; i < graph->lane_count; i++)
        assert(cursors[i] == NULL);
    favourite = NULL; /* it may be one of these */
}

/* Takes the head of one stream; false where none can go on. */
static bool run_one(void)
{
    enum { STREAMS_MAX = 256 };
    struct op *const *heads[STREAMS_MAX] = {NULL};
    struct queue *queues[STREAMS_MAX];
    uint32_t count = 0, i;
    struct op *op;

    for (struct CUstream_st *stream = streams; stream != NULL; stream = stream->next) {
        assert(count < STREAMS_MAX);
        queues[count] = &stream->queue;
        heads[count++] = &stream->queue.first;
    }
    i = choose(heads, count);
    if (i == count)
        return false;
    op = queues[i]->first;
    queues[i]->first = op->next;
    if (op->next == NULL)
        queues[i]->last = &queues[i]->first;
    run_op(op);
    op_free(op);
    return true;
}

static void run_some(uint32_t most)
{
    standin_fence_open();
    while (most > 0 && run_one())
        most--;
    standin_fence_close();
}

/* After the host queued something: the device may have gone on meanwhile, as its seed has it. */
static void drift(void)
{
    static const uint32_t chances[] = {4, 0, 1, 12}; /* of 16, by the seed */

    if (seed == 0)
        run_some(UINT32_MAX);
    else if (draw_below(16) < chances[seed % 4])
        run_some(1 + draw_below(8));
}

void standin_sync(void)
{
    enter();
    run_some(UINT32_MAX);
    for (const struct CUstream_st *stream = streams; stream != NULL; stream = stream->next)
        assert(stream->queue.first == NULL);
    (void)leave(STATUS_OK);
}

void standin_seed_order(uint64_t value)
{
    standin_sync();
    enter();
    seed = random_state = value;
    (void)leave(STATUS_OK);
}

/* -- calls -- */

static bool fails(bool is_captured)
{
    if (standin_faults.fail_call > 0 && --standin_faults.fail_call == 0)
        return true;
    return is_captured && standin_faults.fail_captured > 0 && --standin_faults.fail_captured == 0;
}

int standin_queue(struct CUstream_st *stream, void (*run)(void *args), const void *args,
                  size_t bytes)
{
    struct op op = {.kind = CALL, .run = run};
    struct CUgraphExec_st *capture;

    assert(stream != NULL);
    enter();
    capture = stream->capture;
    standin_stream_counts.launches++;
    if (fails(capture != NULL)) {
        (void)leave(STATUS_OK);
        return STANDIN_FAILED;
    }
    op.args = malloc(bytes);
    assert(op.args != NULL);
    memcpy(op.args, args, bytes);
    if (capture != NULL) {
        push(&capture->lanes[stream->lane], op);
        capture->lane_calls[stream->lane]++;
        capture->is_joined[stream->lane] = false;
        standin_stream_counts.captured++;
    } else {
        push(&stream->queue, op);
        drift();
    }
    (void)leave(STATUS_OK);
    return 0;
}

void standin_run(void (*run)(void *args), void *args)
{
    enter();
    standin_fence_open();
    run(args);
    standin_stream_counts.runs++;
    standin_fence_close();
    (void)leave(STATUS_OK);
}

/* -- streams -- */

enum status standin_stream_new(struct CUstream_st **stream, struct err *err)
{
    (void)err;
    *stream = calloc(1, sizeof **stream);
    assert(*stream != NULL);
    enter();
    queue_init(&(*stream)->queue);
    (*stream)->next = streams;
    streams = *stream;
    standin_stream_counts.streams++;
    return leave(STATUS_OK);
}

static void run_stream(const struct CUstream_st *stream)
{
    standin_fence_open();
    while (stream->queue.first != NULL)
        if (!run_one())
            assert(false && "a stream waits for an event that nobody records");
    standin_fence_close();
}

void standin_stream_free(struct CUstream_st **stream)
{
    struct CUstream_st **at = &streams;

    if (*stream == NULL)
        return;
    enter();
    assert((*stream)->capture == NULL);
    run_stream(*stream);
    while (*at != *stream)
        at = &(*at)->next;
    *at = (*stream)->next;
    if (favourite == (const struct op *const *)&(*stream)->queue.first)
        favourite = NULL;
    free(*stream);
    *stream = NULL;
    standin_stream_counts.streams--;
    (void)leave(STATUS_OK);
}

enum status standin_stream_sync(struct CUstream_st *stream, struct err *err)
{
    (void)err;
    enter();
    assert(stream != NULL && stream->capture == NULL); /* CUDA refuses this too */
    run_stream(stream);
    return leave(STATUS_OK);
}

/* -- events -- */

static enum status event_new(struct CUevent_st **event, bool is_timed)
{
    *event = calloc(1, sizeof **event);
    assert(*event != NULL);
    (*event)->is_timed = is_timed;
    enter();
    standin_stream_counts.events++;
    return leave(STATUS_OK);
}

enum status standin_event_new(struct CUevent_st **event, struct err *err)
{
    (void)err;
    return event_new(event, false);
}

enum status standin_event_new_timed(struct CUevent_st **event, struct err *err)
{
    (void)err;
    return event_new(event, true);
}

void standin_event_free(struct CUevent_st **event)
{
    if (*event == NULL)
        return;
    enter();
    mark_drop((*event)->mark);
    free(*event);
    *event = NULL;
    standin_stream_counts.events--;
    (void)leave(STATUS_OK);
}

enum status standin_event_record(struct CUevent_st *event, struct CUstream_st *stream,
                                 struct err *err)
{
    struct CUgraphExec_st *capture;
    struct mark *mark = calloc(1, sizeof *mark);

    (void)err;
    assert(stream != NULL && mark != NULL);
    enter();
    capture = stream->capture;
    mark_drop(event->mark);
    event->mark = mark;
    mark->references = 2; /* the event's and the queue's */
    mark->capture = capture;
    if (capture != NULL) {
        mark->lane = stream->lane;
        mark->lane_calls = capture->lane_calls[stream->lane];
        push(&capture->lanes[stream->lane], (struct op){.kind = RECORD, .mark = mark});
    } else {
        push(&stream->queue, (struct op){.kind = RECORD, .mark = mark});
        drift();
    }
    return leave(STATUS_OK);
}

/* The stream becomes part of the capture. */
static void fork_into(struct CUgraphExec_st *capture, struct CUstream_st *stream)
{
    assert(capture->lane_count < LANES_MAX);
    stream->capture = capture;
    stream->lane = capture->lane_count++;
    capture->streams[stream->lane] = stream;
    queue_init(&capture->lanes[stream->lane]);
}

static enum status wait_captured(struct mark *mark, struct CUstream_st *stream, struct err *err)
{
    struct CUgraphExec_st *capture = capturing;

    if (mark->capture == NULL || mark->capture != capture ||
        (stream->capture != NULL && stream->capture != capture)) {
        if (capture != NULL)
            capture->is_broken = true;
        return err_set(err, STATUS_LIBRARY, STANDIN_ISOLATION,
                       "stand-in: a wait between a capture and what is outside of it");
    }
    if (stream->capture == NULL)
        fork_into(capture, stream);
    if (stream->lane == 0 && mark->lane_calls == capture->lane_calls[mark->lane])
        capture->is_joined[mark->lane] = true;
    mark->references++;
    push(&capture->lanes[stream->lane], (struct op){.kind = WAIT, .mark = mark});
    return STATUS_OK;
}

enum status standin_event_wait(struct CUevent_st *event, struct CUstream_st *stream,
                               struct err *err)
{
    struct mark *mark;

    enter();
    mark = event->mark;
    assert(stream != NULL && mark != NULL);
    if (mark->capture != NULL || stream->capture != NULL)
        return leave(wait_captured(mark, stream, err));
    mark->references++;
    push(&stream->queue, (struct op){.kind = WAIT, .mark = mark});
    drift();
    return leave(STATUS_OK);
}

enum status standin_event_sync(struct CUevent_st *event, struct err *err)
{
    (void)err;
    enter();
    assert(event->mark != NULL && event->mark->capture == NULL);
    standin_fence_open();
    while (!event->mark->is_done)
        if (!run_one())
            assert(false && "the host waits for an event that nobody records");
    standin_fence_close();
    return leave(STATUS_OK);
}

/* Who asks again and again finds it passed in the end. */
enum status standin_event_passed(struct CUevent_st *event, bool *passed, struct err *err)
{
    (void)err;
    enter();
    assert(event->mark != NULL && event->mark->capture == NULL);
    if (draw_below(4) == 0)
        run_some(1 + draw_below(16));
    *passed = event->mark->is_done;
    return leave(STATUS_OK);
}

enum status standin_event_elapsed(struct CUevent_st *begin, struct CUevent_st *end, double *us,
                                  struct err *err)
{
    (void)err;
    enter();
    assert(begin->is_timed && end->is_timed && begin->mark->is_done && end->mark->is_done);
    *us = (double)(end->mark->at_us - begin->mark->at_us);
    return leave(STATUS_OK);
}

/* -- captures -- */

bool standin_is_capturing(void)
{
    return capturing != NULL;
}

enum status standin_capture_begin(struct CUstream_st *stream, struct err *err)
{
    (void)err;
    assert(capturing == NULL);
    enter();
    assert(stream->capture == NULL);
    capturing = calloc(1, sizeof *capturing);
    assert(capturing != NULL);
    capturing->references = 1;
    fork_into(capturing, stream);
    standin_stream_counts.graphs++;
    return leave(STATUS_OK);
}

enum status standin_capture_end(struct CUstream_st *stream, struct CUgraphExec_st **graph,
                                struct err *err)
{
    struct CUgraphExec_st *captured = capturing;
    bool is_good;

    enter();
    assert(captured != NULL && stream->capture == captured && stream->lane == 0);
    capturing = NULL;
    is_good = !captured->is_broken;
    for (uint32_t lane = 0; lane < captured->lane_count; lane++) {
        captured->streams[lane]->capture = NULL;
        is_good = is_good && (lane == 0 || captured->is_joined[lane]);
    }
    *graph = captured;
    if (is_good && !standin_faults.no_captures)
        return leave(STATUS_OK);
    graph_drop(captured);
    *graph = NULL;
    return leave(err_set(err, STATUS_LIBRARY, STANDIN_NO_CAPTURE, "stand-in: %s",
                         is_good ? "no capture on purpose"
                                 : "a capture with a stream that was not joined, or isolated"));
}

enum status standin_queue_graph(struct CUgraphExec_st *graph, struct CUstream_st *stream,
                                struct err *err)
{
    (void)err;
    enter();
    assert(stream->capture == NULL);
    standin_stream_counts.replayed++;
    graph->references++;
    push(&stream->queue, (struct op){.kind = LAUNCH, .graph = graph});
    drift();
    return leave(STATUS_OK);
}

void standin_graph_free(struct CUgraphExec_st **graph)
{
    if (*graph == NULL)
        return;
    enter();
    graph_drop(*graph);
    *graph = NULL;
    (void)leave(STATUS_OK);
}
