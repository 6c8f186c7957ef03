/* How many connections a listener takes in one turn of its loop. libuv accepts until no more wait, and whoever connects
 * as fast as they are taken would keep the loop from everything else. */
#ifndef COMMON_IO_ACCEPT_TURN_H
#define COMMON_IO_ACCEPT_TURN_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define ACCEPT_TURN_MAX 16u

struct accept_turn {
    uv_idle_t idle;
    uint32_t count;
    void (*again)(void *owner);
    void *owner;
};

/* `again`: the next turn has come: accept the connection that was left. */
void accept_turn_open(struct accept_turn *turn, uv_loop_t *loop, void (*again)(void *owner),
                      void *owner);
/* Call in libuv's callback for each connection. True: leave it; libuv offers no further one until it is accepted. */
bool accept_turn_is_over(struct accept_turn *turn);
/* `closed` may be NULL; its handle is turn->idle, whose data is the owner. */
void accept_turn_close(struct accept_turn *turn, uv_close_cb closed);

#endif
