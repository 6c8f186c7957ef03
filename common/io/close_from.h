/* Closes descriptors that a program shall not get. */
#ifndef COMMON_IO_CLOSE_FROM_H
#define COMMON_IO_CLOSE_FROM_H

#include <stdbool.h>

/* Closes all descriptors from `first` on: at once, or, `on_exec`, when this process runs a program. Also where
 * close_range(2) is missing (before Linux 5.9; its flag before 5.11) or forbidden by a container. Takes no memory
 * and no lock, so that a child which shares its parent's memory may call it. False: errno. */
bool close_from(unsigned first, bool on_exec);

#endif
