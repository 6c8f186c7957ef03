/* What people and programs look at while a training runs. Rank 0 writes all but the trace. The face
 * of this folder:
 *   line.h         metrics.jsonl: one JSON object a line
 *   event.h        the records of TensorBoard's event files (pure)
 *   histogram.h    TensorBoard's buckets
 *   picture_png.h  a picture as PNG
 *   board.h        a run directory for TensorBoard
 *   trace.h        spans of some steps, for Perfetto and chrome://tracing; every rank
 *   append.h       a file that only grows, whole pieces at a time; a full disk costs pieces, never
 *                  the file
 * Nothing here ends a training: a writer returns why it could not write, and goes on when it can. */
#ifndef WORKER_METRICS_METRICS_H
#define WORKER_METRICS_METRICS_H

#include "worker/metrics/board.h"
#include "worker/metrics/line.h"
#include "worker/metrics/trace.h"

#endif
