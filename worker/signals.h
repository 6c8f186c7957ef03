/* The signals of ddp-worker. A thread of its own handles them, and all others block them: the kernels that oneDNN generates use
 * the stack pointer as one more register, so what the kernel writes below it for a handler would be written into the heap. The
 * threads of OpenMP run such kernels too. Its runtime starts and ends them when it likes, and each begins with the signals blocked
 * that the thread which computes blocks. */
#ifndef WORKER_SIGNALS_H
#define WORKER_SIGNALS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "common/status.h"

/* What they ask for; may be set at any time. */
struct signals {
    atomic_bool stop;   /* after the step */
    atomic_bool save;   /* a checkpoint; who has begun it clears this */
    atomic_bool writes; /* set by training while it waits for a checkpoint: no limit ends that */
};

/* Before any other thread. From here on SIGUSR1 asks for a checkpoint, and training goes on (`ddpctl submit --warn`, Slurm's
 * --signal). STATUS_SYSTEM: no thread. */
enum status signals_open(struct err *err);
/* For a process that trains. SIGPIPE ends it if its output has lost its reader; a file that has lost it fails in write(). SIGBUS ends it
 * with a message: a file was cut off while it was read. */
void signals_begin_run(void);
/* From here on SIGTERM and SIGINT ask training to stop after its step, and end the process 8 s later: a peer may be gone. While `writes`
 * is set they do not: the launcher's grace limits that. A second SIGINT (Ctrl-C at a terminal) ends the process at once. */
void signals_catch_stop(void);
/* Of the whole process. */
struct signals *signals_of_training(void);
/* 128 + the signal that asked to stop, else `otherwise`. */
int signals_exit_code(int otherwise);
/* Clears `writes`. The process ends with `code` in 8 s, if it has not ended by then. */
void signals_limit_end(int code);

#endif
