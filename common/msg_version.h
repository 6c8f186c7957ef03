/* Versions of the messages. Programs of neighbouring versions, N and N - 1, understand one another, so that a
 * cluster can be upgraded program by program while jobs run.
 *
 * Each side sends its version in its first message: node_hello, client_hello and shim_hello; the server in its
 * welcome. After that the later of the two leaves out the fields that the earlier one does not know, and accepts
 * messages without them. The earlier one skips fields that it does not know. Everything else stays strict, and
 * between two sides of one version everything is strict.
 *
 * To add a field: increment PROTOCOL_VERSION if the last release has the present number, declare the field in
 * msg.h, and add a row to the table in msg_version.c. A missing field must mean what things meant before the field
 * existed: 0, false, the first value of an enumeration, or empty. Fields are not removed or changed within a
 * version; a limit may grow with one (msg_frame_max). Workers and shims have no hello between them: a shim puts its version into DDP_SHIM_PROTOCOL and accepts
 * its workers' messages with and without later fields. A new message gets a row in the other table there, and is
 * only sent to a peer that knows it. */
#ifndef COMMON_MSG_VERSION_H
#define COMMON_MSG_VERSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/msg.h"

/* The versions of both sides of a connection. `peer` counts as equal to `own` until the peer sends
 * it. */
struct msg_protocols {
    uint32_t own, peer;
};

/* The version that this program speaks: PROTOCOL_VERSION. */
uint32_t msg_protocol(void);

/* The release that this program reports to its peers and with --version: the project's version. A
 * static text. */
const char *msg_release(void);

/* Whether the two versions are equal or neighbours. */
bool msg_protocol_is_near(uint32_t own, uint32_t peer);

/* Whether messages of this type contain the version of their sender: hellos and welcomes do. */
bool msg_says_protocol(enum msg_type type);
/* The version in a hello; 0: the message is no hello. */
uint32_t msg_hello_protocol(const struct msg *msg);

/* The version that introduced the message. */
uint32_t msg_type_since(enum msg_type type);
/* Limits that were lower in earlier versions: of the frame of a message whose present limit is `bytes`, and of
 * the pairs in a field. A message above them is not sent to such a peer. */
size_t msg_frame_max(size_t bytes, uint32_t version);
uint64_t msg_pairs_max(uint64_t count, uint32_t version);
/* The version that introduced a name in the pairs of a field. An earlier peer would refuse it, so it is left
 * out. */
uint32_t msg_pair_since(const char *field, const char *name);
/* The version that introduced the field of that message or part. */
uint32_t msg_field_since(const char *shape, const char *field);

#endif
