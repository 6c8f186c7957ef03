#include "launcherd/core/shim.h"

#include <stddef.h>

const char *shim_signal_name(uint32_t signal)
{
    static const char *const names[] = {
        [1] = "SIGHUP",     [2] = "SIGINT",   [3] = "SIGQUIT",  [4] = "SIGILL",   [5] = "SIGTRAP",
        [6] = "SIGABRT",    [7] = "SIGBUS",   [8] = "SIGFPE",   [9] = "SIGKILL",  [10] = "SIGUSR1",
        [11] = "SIGSEGV",   [12] = "SIGUSR2", [13] = "SIGPIPE", [14] = "SIGALRM", [15] = "SIGTERM",
        [16] = "SIGSTKFLT", [17] = "SIGCHLD", [24] = "SIGXCPU", [25] = "SIGXFSZ", [31] = "SIGSYS",
    };
    return signal < sizeof names / sizeof names[0] ? names[signal] : NULL;
}
