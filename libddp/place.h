/* This process's place in its job, from the environment: the two steps of ddp_open. */
#ifndef LIBDDP_PLACE_H
#define LIBDDP_PLACE_H

#include "common/status.h"
#include "libddp/ddp.h"

/* Reads what launcherd and torchrun set; with nothing set it is a world of one. `*shim_fd`: the
 * connection to the shim, -1 without one. Errors: STATUS_BAD_INPUT (names the variable). */
enum status place_read(struct ddp_place *place, int *shim_fd, struct err *err);
/* The version of the shim's messages (common/msg_version.h): DDP_SHIM_PROTOCOL, 1 where a shim does not say. */
uint64_t place_shim_protocol(void);
/* The second step of ddp_open, for a place that has been read. May be called any number of times in
 * a process. Takes over shim_fd; -1: none. Errors: STATUS_BAD_INPUT (it is no connection to a
 * shim), STATUS_MEMORY. */
enum status ddp_open_at(struct ddp **ddp, const struct ddp_place *place, int shim_fd,
                        struct err *err);

#endif
