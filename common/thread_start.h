/* Starts a thread that gets no signals: those are for the thread of the loop. */
#ifndef COMMON_THREAD_START_H
#define COMMON_THREAD_START_H

#include <pthread.h>
#include <stddef.h>

/* `thread` NULL: it is detached. `stack_bytes` 0: the default. Returns 0, or pthread_create's error. */
int thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *), void *argument);

#endif
