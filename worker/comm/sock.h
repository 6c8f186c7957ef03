/* TCP sockets. All descriptors are non-blocking and closed on exec. Deadlines are times of
 * mono_us(). */
#ifndef WORKER_COMM_SOCK_H
#define WORKER_COMM_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/comm/wire.h"

/* Milliseconds until a deadline, for poll(2); 0 when it has passed. */
int comm_left_ms(uint64_t deadline_us);

/* Listens on `address` (numeric or a name of this host) and a port that the kernel chooses. `place`
 * gets the address to which others connect. */
enum status comm_listen(const char *address, int *fd, struct comm_place *place, struct err *err);
/* Starts to connect. When the descriptor is writable, comm_connect_result() has the result. Returns
 * -1 with errno on failure. */
int comm_connect_begin(const struct comm_place *place);
/* 0 or an errno. */
int comm_connect_result(int fd);
/* TCP_NODELAY: small messages are sent at once. */
void comm_sock_tune(int fd);

/* Sends or receives all bytes. Errors: STATUS_TIMEOUT, STATUS_CLOSED (by the peer), STATUS_IO. */
enum status comm_send_all(int fd, const void *bytes, size_t byte_count, uint64_t deadline_us);
enum status comm_receive_all(int fd, void *bytes, size_t byte_count, uint64_t deadline_us);
/* Shuts down writing, so that the peer gets all data before the end of the stream, and closes. Sets
 * *fd to -1; -1 is legal. */
void comm_sock_close(int *fd);

#endif
