/* A relay between a client and a port of this machine that can be switched off: existing
 * connections then end, and new ones end at once. It has its own thread. */
#ifndef TESTS_LIB_TCP_SWITCH_H
#define TESTS_LIB_TCP_SWITCH_H

#include <stdbool.h>
#include <stdint.h>

struct tcp_switch;

/* Opens it, switched on. */
struct tcp_switch *tcp_switch_open(uint16_t port);
uint16_t tcp_switch_port(const struct tcp_switch *relay);
/* After switching off, no data passes once this has returned. */
void tcp_switch_set(struct tcp_switch *relay, bool is_on);
void tcp_switch_close(struct tcp_switch *relay);

#endif
