/* Who may send what: one table, and what is not in it is refused. docs/protocol.md has it for
 * people. */
#ifndef RENDEZVOUS_SERVER_ACCESS_H
#define RENDEZVOUS_SERVER_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/msg.h"

/* Roles of a connection are a set: root on the unix socket may be a node or an admin, and its hello
 * says which. */
#define ACCESS_NODE (1u << ROLE_NODE)
#define ACCESS_USER (1u << ROLE_USER)
#define ACCESS_ADMIN (1u << ROLE_ADMIN)
#define ACCESS_PERSON (ACCESS_USER | ACCESS_ADMIN)

/* The roles that may send this message to the server; 0: nobody. */
uint32_t access_roles(enum msg_type type);
/* Whether a connection with any of `roles` may. */
bool access_allows(uint32_t roles, enum msg_type type);

#endif
