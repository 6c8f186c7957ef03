#include "common/io/accept_turn.h"

#include <assert.h>

/* The next turn. An idle handle keeps the loop from waiting for events before it. */
static void on_turn(uv_idle_t *idle)
{
    struct accept_turn *turn = (struct accept_turn *)idle;

    (void)uv_idle_stop(idle);
    turn->count = 1;
    turn->again(turn->owner);
}

void accept_turn_open(struct accept_turn *turn, uv_loop_t *loop, void (*again)(void *owner),
                      void *owner)
{
    int code = uv_idle_init(loop, &turn->idle);

    assert(code == 0); /* neither allocates nor asks the kernel */
    (void)code;
    turn->idle.data = turn->owner = owner;
    turn->again = again;
    turn->count = 0;
}

bool accept_turn_is_over(struct accept_turn *turn)
{
    if (turn->count < ACCEPT_TURN_MAX) {
        turn->count++;
        return false;
    }
    (void)uv_idle_start(&turn->idle, on_turn);
    return true;
}

void accept_turn_close(struct accept_turn *turn, uv_close_cb closed)
{
    uv_close((uv_handle_t *)&turn->idle, closed);
}
