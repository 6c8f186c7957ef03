/* What a rank reads on its stdin, on request (--stdin): bytes that come from a client go into a pipe, or into
 * the rank's terminal. One request at a time; it is answered when all of it was taken, or after
 * INPUT_ANSWER_MS with how much was. Bytes are counted from the start of the generation, so a request
 * that is sent again does no harm. An edge of the shim. */
#ifndef LAUNCHERD_SHIM_INPUT_H
#define LAUNCHERD_SHIM_INPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/msg.h"

#define INPUT_ANSWER_MS 1000u

struct input {
    uv_poll_t poll;
    uv_timer_t timer;
    int fd;           /* of the pipe, or of the terminal's master */
    bool is_terminal; /* the end is a character, and the size can change */
    bool is_wanted;   /* the rank gets a stdin when it starts; set by the owner */
    bool was_opened;  /* it has one, or had */
    bool has_handles; /* poll and timer, until their close callbacks */
    uint64_t taken;   /* bytes that the pipe has taken */
    bool is_asked;    /* the request below is not answered yet: */
    uint64_t request_id, offset;
    uint32_t count;
    bool is_end;
    uint8_t bytes[STDIN_BYTES_MAX];
    void *owner;
    void (*answer)(void *owner, const struct msg_input_state *state);
};

/* `owner` and `answer` are set by the caller. `fd`: our end; it is taken, and closed on failure too. */
enum status input_open(struct input *input, uv_loop_t *loop, int fd, bool is_terminal,
                       struct err *err);
/* Answers now or later. Also for a rank without a stdin, or whose stdin is closed. */
void input_give(struct input *input, const struct msg_input *request);
/* The rank has ended, or the shim does: what was asked is answered. A second call does nothing. */
void input_close(struct input *input);

#endif
