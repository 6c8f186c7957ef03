/* Streams, events and captures as queues; private to tests/standin/cuda. Every function may be
 * called on any thread. */
#ifndef TESTS_STANDIN_CUDA_STREAMS_H
#define TESTS_STANDIN_CUDA_STREAMS_H

#include "tests/standin/cuda/standin.h"

enum { STANDIN_FAILED = 700, STANDIN_NO_CAPTURE = 900, STANDIN_ISOLATION = 905 };

/* The fence, in standin.c: opened before calls run, closed after them. */
void standin_fence_open(void);
void standin_fence_close(void);

/* All counts but those of memory; standin_counts adds them. */
extern struct standin_counts standin_stream_counts;
/* Whether this thread captures: then memory must not be made or freed. */
bool standin_is_capturing(void);

enum status standin_stream_new(struct CUstream_st **stream, struct err *err);
void standin_stream_free(struct CUstream_st **stream);
enum status standin_stream_sync(struct CUstream_st *stream, struct err *err);
enum status standin_event_new(struct CUevent_st **event, struct err *err);
enum status standin_event_new_timed(struct CUevent_st **event, struct err *err);
void standin_event_free(struct CUevent_st **event);
enum status standin_event_record(struct CUevent_st *event, struct CUstream_st *stream,
                                 struct err *err);
enum status standin_event_wait(struct CUevent_st *event, struct CUstream_st *stream,
                               struct err *err);
enum status standin_event_sync(struct CUevent_st *event, struct err *err);
enum status standin_event_passed(struct CUevent_st *event, bool *passed, struct err *err);
enum status standin_event_elapsed(struct CUevent_st *begin, struct CUevent_st *end, double *us,
                                  struct err *err);
enum status standin_capture_begin(struct CUstream_st *stream, struct err *err);
enum status standin_capture_end(struct CUstream_st *stream, struct CUgraphExec_st **graph,
                                struct err *err);
enum status standin_queue_graph(struct CUgraphExec_st *graph, struct CUstream_st *stream,
                                struct err *err);
void standin_graph_free(struct CUgraphExec_st **graph);

#endif
