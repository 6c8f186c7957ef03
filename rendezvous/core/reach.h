/* Under which address the other nodes of a generation reach a node.
 *
 * A node says the address from which it reaches the server. On the server's own machine that is 127.0.0.1, which is right for
 * jobs of that machine alone. With a node of another machine in the job it is the address at which that one has reached the
 * server: so this machine is known to be reached there. A node elsewhere that says such an address reaches the server through
 * a tunnel, and a link-local address of IPv6 needs the name of an interface: nobody here knows an address of these. */
#ifndef RENDEZVOUS_CORE_REACH_H
#define RENDEZVOUS_CORE_REACH_H

#include "rendezvous/core/job.h"
#include "rendezvous/core/roster.h"

/* `at`: the server's address that the node has called; NULL: a unix socket. */
void reach_hello(struct node *node, const char *at);
/* The address of the part's node for the others of the generation; "": it is not known yet. */
const char *reach_address(const struct rdzv *rdzv, const struct job *job, uint32_t part);
/* Whether no other machine can reach the ranks of the node. */
bool reach_is_alone(const struct rdzv *rdzv, const struct node *node);
/* Whether the others do not reach the node of some part: `why` says which. */
bool reach_is_refused(const struct rdzv *rdzv, const struct job *job, uint32_t *part,
                      char why[REASON_BYTES_MAX]);

#endif
