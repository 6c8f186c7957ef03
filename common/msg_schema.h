/* The schema of the messages as text: what two builds must have in common to speak one protocol number.
 * A release changes the number when it changes the schema. Between releases builds may differ with one
 * number, so a hello carries a hash of the schema too, and is refused when it is another one. */
#ifndef COMMON_MSG_SCHEMA_H
#define COMMON_MSG_SCHEMA_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/msg.h"

/* Adds one line for each message of that protocol version, with its most bytes, and one for each of its
 * fields: name, kind, range. */
void msg_schema_write(struct buf *text, uint32_t version);

/* The hash of this program's schema: 16 hexadecimal digits; "" if there was no memory for it. The first
 * call computes it, so call it first while there is one thread. A static text. */
const char *msg_schema(void);

/* Whether a peer whose hello has this protocol and schema has other messages than this program although
 * its protocol number is the same. False for a peer that does not say its schema. */
bool msg_schema_differs(uint32_t own_protocol, uint32_t protocol, const char *schema);

/* The schema in a hello; NULL: the message is no hello. */
const char *msg_hello_schema(const struct msg *msg);

#endif
