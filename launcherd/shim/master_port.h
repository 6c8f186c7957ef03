/* The port at which the ranks of a generation meet: MASTER_PORT. Part of the edge of the shim. */
#ifndef LAUNCHERD_SHIM_MASTER_PORT_H
#define LAUNCHERD_SHIM_MASTER_PORT_H

#include <stdint.h>

/* Binds a free port on the numeric `address` (of all local addresses, where it is none) without listening on it. The
 * kernel then gives it to no other process that asks for any free port, while rank 0 can bind it with SO_REUSEADDR, as
 * servers do. The descriptor; -1: errno says why. */
int master_port_bind(const char *address, uint32_t *port);

#endif
