#include "common/thread_start.h"

#include <signal.h>

int thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t detached;
    int code = pthread_attr_init(&attributes);

    if (code != 0)
        return code;
    if (stack_bytes > 0)
        (void)pthread_attr_setstacksize(&attributes, stack_bytes);
    if (thread == NULL)
        (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    code = pthread_create(thread != NULL ? thread : &detached, &attributes, run, argument);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return code;
}
