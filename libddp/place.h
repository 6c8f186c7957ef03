/* This process's place in its job, from the environment: the two halves of ddp_open. */
#ifndef LIBDDP_PLACE_H
#define LIBDDP_PLACE_H

#include "common/status.h"
#include "libddp/ddp.h"

/* Reads what launcherd and torchrun set; with nothing set it is a world of one. `*shim_fd`: the
 * connection to the shim, -1 without one. Errors: STATUS_BAD_INPUT (names the variable). */
enum status place_read(struct ddp_place *place, int *shim_fd, struct err *err);
/* The version of the shim's messages (common/msg_version.h): DDP_SHIM_PROTOCOL, 1 where a shim does not say. */
uint64_t place_shim_protocol(void);
/* As ddp_open, for a place that was read before; of any number in a process. Takes shim_fd over; -1: none.
 * Errors: STATUS_BAD_INPUT (it is not a connection to a shim), STATUS_MEMORY. */
enum status ddp_open_at(struct ddp **ddp, const struct ddp_place *place, int shim_fd,
                        struct err *err);

#endif
