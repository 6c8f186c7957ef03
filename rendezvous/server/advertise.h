/* The address by which other machines reach the server; it is written into keys. */
#ifndef RENDEZVOUS_SERVER_ADVERTISE_H
#define RENDEZVOUS_SERVER_ADVERTISE_H

#include "common/key.h"
#include "common/status.h"

/* Writes HOST:PORT to `out` [KEY_HOST_BYTES_MAX + 8]. `wanted`: the operator's choice; NULL:
 * derived from `bound`, the address that the server listens on. 0.0.0.0 and [::] are replaced by
 * this machine's full name (head.example.org), or by the address of an interface if the name has no
 * domain. May block on a name lookup. STATUS_BAD_INPUT: `wanted` is not HOST:PORT. */
enum status advertise_address(const char *bound, const char *wanted, char *out, struct err *err);

#endif
