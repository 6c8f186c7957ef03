/* The port at which the ranks of a generation meet: MASTER_PORT. Part of the edge of the shim. */
#ifndef LAUNCHERD_SHIM_MASTER_PORT_H
#define LAUNCHERD_SHIM_MASTER_PORT_H

#include <stdint.h>

/* Binds a free port on the numeric `address` (on all local addresses if it is not numeric) without
 * listening on it. The kernel then gives the port to no other process that asks for any free port,
 * while rank 0 can bind it with SO_REUSEADDR, as servers do. Returns the descriptor, which the
 * caller closes; -1: errno. */
int master_port_bind(const char *address, uint32_t *port);

#endif
