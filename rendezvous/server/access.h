/* Which roles may send which message: one table. What is not in it is refused. docs/protocol.md
 * describes it. */
#ifndef RENDEZVOUS_SERVER_ACCESS_H
#define RENDEZVOUS_SERVER_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/msg.h"

/* The roles of a connection are a set: root on the unix socket may be a node or an admin. Its hello
 * chooses one. */
#define ACCESS_NODE (1u << ROLE_NODE)
#define ACCESS_USER (1u << ROLE_USER)
#define ACCESS_ADMIN (1u << ROLE_ADMIN)
#define ACCESS_PERSON (ACCESS_USER | ACCESS_ADMIN)

/* The roles that may send this message to the server; 0: none. */
uint32_t access_roles(enum msg_type type);
/* Whether a connection with any of `roles` may send it. */
bool access_allows(uint32_t roles, enum msg_type type);

#endif
