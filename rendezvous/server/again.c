#include "rendezvous/server/again.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/io/close_from.h"
#include "common/log.h"
#include "rendezvous/store/store.h"

#define VARIABLE "DDP_RENDEZVOUS_AGAIN" /* only set for the next start */

static char **arguments;
static char text[4200];
static bool is_again;

void again_init(char **argv)
{
    const char *said = getenv(VARIABLE);

    arguments = argv;
    is_again = said != NULL;
    (void)snprintf(text, sizeof text, "%s", said != NULL ? said : "");
    (void)unsetenv(VARIABLE);
}

bool again_is_set(void)
{
    return is_again;
}

const char *again_bound(void)
{
    return text;
}

void again_start(const char *bound)
{
    sigset_t none;

    (void)setenv(VARIABLE, bound, 1);
    (void)close_from(3, true); /* libraries may have some that are not close-on-exec */
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)execv("/proc/self/exe", arguments);
    log_line(LOG_ERROR, LOG_ABOUT_NONE, "this process could not start again: ending");
    _exit(STORE_EXIT_CODE);
}
