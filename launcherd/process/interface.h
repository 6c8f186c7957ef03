/* Network interfaces of this machine and their addresses, as texts. */
#ifndef LAUNCHERD_PROCESS_INTERFACE_H
#define LAUNCHERD_PROCESS_INTERFACE_H

#include <net/if.h>
#include <stdbool.h>

#include "common/limits.h"
#include "common/status.h"

/* The interface with that numeric `address`; an IPv6 address may end in %ZONE. False: none has
 * it. */
bool interface_of_address(const char *address, char name[IF_NAMESIZE]);
/* Copies a numeric address that an interface has now. STATUS_BAD_INPUT: it is not numeric; STATUS_NOT_FOUND: no interface
 * has it, or not yet. */
enum status interface_take(const char *wanted, char address[ADDRESS_BYTES_MAX], struct err *err);
/* The address of an interface by which other machines can reach it: its first IPv4 address,
 * otherwise its first IPv6 address that is not link-local. STATUS_NOT_FOUND: no such interface or
 * address. */
enum status interface_address(const char *name, char address[ADDRESS_BYTES_MAX], struct err *err);
/* The one of --address or of --interface, of which at most one may be given; without both 127.0.0.1, until the way to
 * the server is known. */
enum status interface_choose(const char *wanted, const char *name, char address[ADDRESS_BYTES_MAX],
                             struct err *err);

#endif
