/* The address by which other machines reach the server; it is written into keys, and told to other servers. */
#ifndef RENDEZVOUS_SERVER_ADVERTISE_H
#define RENDEZVOUS_SERVER_ADVERTISE_H

#include <ifaddrs.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "common/key.h"
#include "common/limits.h"
#include "common/status.h"

#define ADVERTISE_BYTES (KEY_HOST_BYTES_MAX + 8)

/* What an address may be of, and the own addresses on the way to anywhere ("": there is none). */
struct advertise_ways {
    bool with_v4, with_v6;
    char v4[ADDRESS_BYTES_MAX], v6[ADDRESS_BYTES_MAX];
};

/* STATUS_BAD_INPUT: the operator's choice is not HOST:PORT. */
enum status advertise_check(const char *wanted, struct err *err);
/* Whether that is 0.0.0.0:PORT or [::]:PORT, every address of this machine. */
bool advertise_is_open(const char *bound);
/* This machine's name with its domain (head.example.org), if the resolver knows an address of it that others reach. A name
 * without a domain is of little use on other machines. May block. */
bool advertise_name(char *out, size_t out_bytes);
/* The best of these addresses. False: other machines reach none of them. */
bool advertise_pick(const struct ifaddrs *all, const struct advertise_ways *ways,
                    struct sockaddr_storage *out);
/* Writes HOST:PORT to `out` [ADVERTISE_BYTES]: `bound`, the address that the server listens on. In place of 0.0.0.0 and [::]
 * it has `name`, else `reached`, the address at which another machine has reached this one, else that of an interface. The
 * last two may be NULL. Does not block. */
void advertise_address(const char *bound, const char *name, const char *reached, char *out);

#endif
