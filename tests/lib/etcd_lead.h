/* A client of a real etcd in tests, and the key that a leader has there. */
#ifndef TESTS_LIB_ETCD_LEAD_H
#define TESTS_LIB_ETCD_LEAD_H

#include <stdint.h>

#include "rendezvous/store/etcd_client.h"

/* Options for etcd at that port of loopback, without TLS. Fails the test on an error. */
void etcd_lead_options(uint16_t port, struct etcd_options *options);
/* A client of it; the caller closes it with etcd_close. */
struct etcd_client *etcd_lead_connect(uint16_t port);
/* Takes the lead from whoever has it: creates PREFIX "leader" anew. Returns its create revision. */
int64_t etcd_lead_take(struct etcd_client *client, const char *prefix);

#endif
