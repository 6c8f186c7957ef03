/* What an error number of exec, chdir or a lookup on the way to a program says: that the program
 * cannot run, or that this machine could not try. One table for all places that start something.
 *
 * An error is final only if it says something about the program, its arguments or its path. All
 * others are the machine's: it has no memory, no process or no descriptor left, a file server does
 * not answer, somebody is writing the file just now. These may pass, and another machine may not
 * have them. So an error that is not in the table counts as the machine's. */
#ifndef LAUNCHERD_PROCESS_RUN_ERROR_H
#define LAUNCHERD_PROCESS_RUN_ERROR_H

#include <stdbool.h>
#include <stdint.h>

#define RUN_EXIT_MACHINE 125      /* it was not tried: the failure of the machine */
#define RUN_EXIT_NOT_RUNNABLE 126 /* as a shell: it is there and cannot be run */
#define RUN_EXIT_NOT_FOUND 127    /* as a shell: it is not there */

/* The exit code that stands for this errno of exec, chdir or stat: one of the three above. */
int32_t run_error_exit(int code);
/* Whether the program cannot run, here, however often it is tried. */
bool run_error_is_final(int code);

#endif
