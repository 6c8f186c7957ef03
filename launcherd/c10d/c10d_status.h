/* The clients of a c10d store and what they wait for, as JSON (schema ddp.store.v1):
 *
 *   {"schema":"ddp.store.v1","address":"10.0.0.1:41235","keys":12,"bytes":4096,"clients":[
 *     {"client":0,"address":"10.0.0.2","node":"node1","pid":4711,"connected_s":1.2,
 *      "waits":"keys","waits_s":3.4,"missing":["default_pg/0//cuda//0"],"missing_count":1}]}
 *
 * `pid` is what the client says, 0 if it has not; `waits` is "keys", "barrier" or "". `missing` has the first 8 keys,
 * printable and without the "/" that PyTorch puts before them. With more than C10D_STATUS_CLIENTS_MAX clients, those
 * that wait for nothing are left out first; "clients_left_out" counts the missing ones. */
#ifndef LAUNCHERD_C10D_C10D_STATUS_H
#define LAUNCHERD_C10D_C10D_STATUS_H

#include <stdint.h>

#include "common/msg.h"
#include "launcherd/c10d/c10d_server.h"

#define C10D_STATUS_CLIENTS_MAX 4096u

/* `nodes`: names and addresses. Free the result. NULL: no memory. */
char *c10d_status(const struct c10d_server *server, const struct msg_pair_list *nodes,
                  uint64_t now_us);

#endif
