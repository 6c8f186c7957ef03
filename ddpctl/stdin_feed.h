/* Our stdin for one rank of the attached job (--stdin), and with --tty our terminal. An edge: it reads stdin, sends
 * what feed.h decides over a connection of its own, and keeps a terminal in raw mode as long as the rank takes input, so
 * that keys such as Ctrl-C go to the program. While it does not (it has not started, or has ended, or its node does not
 * answer) Ctrl-C is for us.
 *
 * In raw mode, Ctrl-] three times within a second detaches from the job. */
#ifndef DDPCTL_STDIN_FEED_H
#define DDPCTL_STDIN_FEED_H

#include <stdbool.h>
#include <stdint.h>
#include <termios.h>
#include <uv.h>

#include "ddpctl/client.h"
#include "ddpctl/ctl.h"
#include "ddpctl/feed.h"

struct stdin_feed_options {
    struct ctl *ctl;
    uv_loop_t *loop;
    uint32_t rank;
    bool is_raw;      /* --tty, and stdin is a terminal */
    bool shows_lines; /* our terminal still has to return the carriage at a line feed */
    uint64_t patience_us;
    void *owner;
    void (*on_escape)(void *owner); /* Ctrl-] three times */
    void (*on_break)(void *owner);  /* Ctrl-C, which the rank did not take */
};

struct stdin_feed {
    struct stdin_feed_options options;
    bool is_open, has_poll, has_client, is_polled;
    struct client client;
    uv_poll_t poll;
    uv_timer_t timer;  /* until a rank that is not running yet is tried again */
    uv_timer_t silent; /* until keys that nobody has taken give up raw mode */
    uv_signal_t resized;
    int fd;
    bool has_terminal; /* `before` is how our terminal was */
    bool is_raw;       /* its keys are the rank's */
    bool is_announced; /* reported that keys go to the rank */
    struct termios before;
    uint32_t escapes;
    uint64_t escape_at_us;
    uint64_t job_id;
    struct feed feed;
};

void stdin_feed_open(struct stdin_feed *input, const struct stdin_feed_options *options);
/* The job starts or runs in this generation. */
void stdin_feed_job(struct stdin_feed *input, uint64_t job_id, uint32_t generation);
/* Its rank has ended in this generation. */
void stdin_feed_over(struct stdin_feed *input, uint32_t generation);
/* Restores the terminal. The handles are free after the loop's next turn. A second call does
 * nothing. */
void stdin_feed_close(struct stdin_feed *input);

#endif
