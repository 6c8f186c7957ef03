/* The stdin of a rank, on request (--stdin): the bytes that a client sends go into a pipe, or into
 * the rank's terminal. There is one request at a time. It is answered when all its bytes are
 * written, or after INPUT_ANSWER_MS with the number of bytes so far. Bytes are counted from the
 * start of the generation, so a request that is sent twice does no harm. Part of the edge of the
 * shim. */
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
    int fd;           /* our end of the pipe, or the terminal's master */
    bool is_terminal; /* a character marks the end, and the size can change */
    bool is_wanted;   /* the rank gets a stdin when it starts; set by worker_ends_init */
    bool was_opened;  /* the rank has a stdin, or had one */
    bool has_handles; /* poll and timer are open */
    bool is_in_line;  /* the last byte written did not end a line */
    uint64_t taken;   /* bytes written to `fd` */
    bool is_asked;    /* the request below is not answered yet: */
    uint64_t request_id, offset;
    uint32_t count;
    bool is_end;
    uint8_t bytes[STDIN_BYTES_MAX];
    void *owner;
    void (*answer)(void *owner, const struct msg_input_state *state);
};

/* The caller has set `owner` and `answer`. Takes `fd`, our end of the pipe or terminal, and closes
 * it on failure too. */
enum status input_open(struct input *input, uv_loop_t *loop, int fd, bool is_terminal,
                       struct err *err);
/* Calls `answer` now or later, also for a rank without a stdin or with a closed one. */
void input_give(struct input *input, const struct msg_input *request);
/* Call when the rank or the shim ends. Answers the open request. A second call does nothing. */
void input_close(struct input *input);

#endif
