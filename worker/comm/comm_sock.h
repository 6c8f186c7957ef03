/* Small steps with TCP sockets. All descriptors are non-blocking and closed on exec; deadlines are
 * on mono_us(). */
#ifndef WORKER_COMM_COMM_SOCK_H
#define WORKER_COMM_COMM_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/comm/comm_wire.h"

/* CLOCK_MONOTONIC. */
uint64_t comm_mono_us(void);
/* What is left of a deadline, for poll(2); 0 when it has passed. */
int comm_left_ms(uint64_t deadline_us);

/* Listens on `address` (numeric or a name of this host) and a port that the kernel chooses; `place`
 * is what others connect to. */
enum status comm_listen(const char *address, int *fd, struct comm_place *place, struct err *err);
/* Begins to connect; writable means done, comm_connect_result() says how. -1: errno says why. */
int comm_connect_begin(const struct comm_place *place);
/* 0 or an errno. */
int comm_connect_result(int fd);
/* No delay for small messages. */
void comm_sock_tune(int fd);

/* Whole or STATUS_TIMEOUT, STATUS_CLOSED (the peer went), STATUS_IO. `err` names no peer: the
 * caller does. */
enum status comm_send_all(int fd, const void *bytes, size_t byte_count, uint64_t deadline_us);
enum status comm_receive_all(int fd, void *bytes, size_t byte_count, uint64_t deadline_us);
/* Data first, then the end of the stream. The descriptor is closed in any case; -1 is legal. */
void comm_sock_close(int *fd);

#endif
