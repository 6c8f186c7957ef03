/* A worker that is started before it has a place: on a spare node of a job (docs/elastic.md). Its launcher has set DDP_WARM_FD, a
 * socket. The worker loads what any rank needs, writes one byte there, 'a', and waits. Then it gets its place: one byte,
 * and with it, as SCM_RIGHTS, five descriptors: stdin, stdout, stderr, the socket to its shim, and a file
 * with the whole environment, "NAME=value" with a NUL after each. It takes them and writes 't'. From there on it is as if it had been
 * started with these. A worker that has not written 't' within 5 s is killed. One whose first byte is another one ('r', of earlier
 * versions) need not write it. */
#ifndef WORKER_WARM_H
#define WORKER_WARM_H

#include <stdbool.h>

#include "common/status.h"
#include "worker/device.h"

bool warm_is_wanted(void);
/* Opens the device, which loads its libraries and makes its context there. It stays open; device_open opens it again
 * at little cost. `asked`: as for device_open. Errors: those of device_open; STATUS_BAD_INPUT (LOCAL_RANK). */
enum status warm_up(struct device *device, const char *asked, struct err *err);
/* Says that it is ready, and takes its place. Changes the environment: no thread that reads it may run. Errors: STATUS_CLOSED (the
 * launcher has closed the socket: it is not wanted), STATUS_BAD_INPUT, STATUS_SYSTEM. */
enum status warm_wait(struct err *err);

#endif
