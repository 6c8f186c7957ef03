/* Versions of the messages. Programs of neighbouring versions, N and N - 1, understand one another, so
 * that a cluster is upgraded program by program while jobs run.
 *
 * Each side says its version in its first message: node_hello, client_hello and shim_hello; the server
 * in its welcome. From then on the later of the two leaves out the fields that the earlier one does
 * not know, and takes messages without them. The earlier one passes over fields that it does not know.
 * Everything else stays strict, and between two sides of one version all is.
 *
 * To add a field: count PROTOCOL_VERSION up if the last release has this number, declare the field in
 * msg.h, and add a row to the table in msg_version.c. Left out it must mean what it meant before there
 * was such a field: 0, false, the first value of an enumeration, or empty. Fields are not removed or
 * changed within a version. Workers and shims have no hello: a shim says its version in
 * DDP_SHIM_PROTOCOL, and takes what its workers say with and without later fields. A new message has a row in the other table there, and is sent only to
 * a peer that knows it. */
#ifndef COMMON_MSG_VERSION_H
#define COMMON_MSG_VERSION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/msg.h"

/* The version that each side of a connection speaks; `peer` is taken to be `own` until it says. */
struct msg_protocols {
    uint32_t own, peer;
};

/* What this program speaks: PROTOCOL_VERSION. In msg_protocol.c alone, so that a test links programs
 * that speak another one. */
uint32_t msg_protocol(void);

/* The release that this program says it is, to its peers and with --version: the project's version. Beside msg_protocol()
 * for the same reason. A static text. */
const char *msg_release(void);

/* The two versions are the same or neighbours. */
bool msg_protocol_is_near(uint32_t own, uint32_t peer);

/* Messages of this type say the version of who sends them: the hellos and welcomes. */
bool msg_says_protocol(enum msg_type type);
/* The version that a hello says; 0: it is none. */
uint32_t msg_hello_protocol(const struct msg *msg);

/* Whether this is how a server of version 1 refuses a hello of `own`: it takes no version but its own,
 * so who speaks the next one has to begin again as version 1. */
bool msg_wants_first_protocol(const struct msg_error *error, uint32_t own);

/* The version that the message came with. */
uint32_t msg_type_since(enum msg_type type);
/* The version that the field, of the message or part of that name, came with. */
uint32_t msg_field_since(const char *shape, const char *field);

#endif
