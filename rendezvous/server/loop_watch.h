/* Says when the server's loop stands still. One server with its state on a disk that hangs can tell nobody else: it commits on the
 * loop, so it answers nothing until the disk does. The log then names what to look at. */
#ifndef RENDEZVOUS_SERVER_LOOP_WATCH_H
#define RENDEZVOUS_SERVER_LOOP_WATCH_H

#include <stdint.h>
#include <uv.h>

#include "common/status.h"

#define LOOP_WATCH_LATE_US 10000000u

struct loop_watch;

/* `state_dir`, `lease_us`: for the text. The timer does not keep the loop running. STATUS_MEMORY, STATUS_SYSTEM. */
enum status loop_watch_open(struct loop_watch **watch, uv_loop_t *loop, const char *state_dir,
                            uint64_t lease_us, struct err *err);
/* The loop must run once more. */
void loop_watch_close(struct loop_watch **watch);

#endif
