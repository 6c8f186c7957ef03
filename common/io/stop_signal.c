#include "common/io/stop_signal.h"

#include <signal.h>
#include <stdlib.h>

bool stop_signal_is_in_step(void)
{
    return getenv(STOP_SIGNAL_VARIABLE) != NULL;
}

int stop_signal(void)
{
    return stop_signal_is_in_step() ? SIGINT : SIGTERM;
}

static void do_nothing(int number)
{
    (void)number;
}

void stop_signal_shield(void)
{
    static const int numbers[] = {SIGTERM, SIGUSR1, SIGUSR2};
    struct sigaction action = {.sa_handler = do_nothing, .sa_flags = SA_RESTART};

    if (!stop_signal_is_in_step())
        return;
    (void)sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        (void)sigaction(numbers[i], &action, NULL);
}
