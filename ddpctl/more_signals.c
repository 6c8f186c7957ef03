#include "ddpctl/more_signals.h"

static void on_signal(uv_signal_t *handle, int number)
{
    interrupt_with(handle->data, number);
}

void more_signals_open(struct more_signals *more, struct interrupt *interrupt, uv_loop_t *loop,
                       uint64_t mask)
{
    more->count = 0;
    for (int number = 1; number < 64 && more->count < MORE_SIGNALS_MAX; number++) {
        uv_signal_t *handle = &more->handles[more->count];

        if (!(mask >> number & 1) || uv_signal_init(loop, handle) != 0)
            continue;
        more->count++;
        handle->data = interrupt;
        (void)uv_signal_start(handle, on_signal, number);
    }
}

void more_signals_close(struct more_signals *more)
{
    for (uint32_t i = 0; i < more->count; i++)
        uv_close((uv_handle_t *)&more->handles[i], NULL);
    more->count = 0;
}
