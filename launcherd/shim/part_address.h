/* The address of this node for the other nodes of its generation. Part of the edge of the shim.
 *
 * On the server's machine launcherd may know only a loopback address. The server knows which other one the nodes of the job
 * use (rendezvous/core/reach.h), and tells it to the first of them in `start`, with all addresses. The others take the one
 * from which they call the master. */
#ifndef LAUNCHERD_SHIM_PART_ADDRESS_H
#define LAUNCHERD_SHIM_PART_ADDRESS_H

#include "common/limits.h"
#include "common/msg.h"

/* `given`: launcherd's. */
void part_address_start(const struct msg_start *start, const char *node_name, const char *given,
                        char address[ADDRESS_BYTES_MAX]);
void part_address_go(const char *master_addr, char address[ADDRESS_BYTES_MAX]);

#endif
