/* How other machines reach the server: what keys say. */
#ifndef RENDEZVOUS_SERVER_ADVERTISE_H
#define RENDEZVOUS_SERVER_ADVERTISE_H

#include "common/key.h"
#include "common/status.h"

/* `out`: [KEY_HOST_BYTES_MAX + 8], HOST:PORT. `wanted`: what the operator says, or NULL; then it is
 * the address `bound` that we listen on, and in place of 0.0.0.0 or [::] this machine's full name
 * (head.example.org), or where it has no domain, the address of an interface. May block on a name lookup.
 * STATUS_BAD_INPUT: `wanted` is not HOST:PORT. */
enum status advertise_address(const char *bound, const char *wanted, char *out, struct err *err);

#endif
