/* Our stdin for one rank of the job that we are attached to (--stdin), and with --tty our terminal. An edge:
 * reads stdin, sends what feed.h decides over a connection of its own, and puts a terminal into raw mode as
 * long as it feeds it, so that Ctrl-C and the like go to the program.
 *
 * At a raw terminal three Ctrl-] within a second let go of the job. */
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
    bool is_raw; /* --tty, and stdin is a terminal */
    uint64_t patience_us;
    void *owner;
    void (*on_escape)(void *owner); /* Ctrl-] three times */
};

struct stdin_feed {
    struct stdin_feed_options options;
    bool is_open, has_poll, has_client, is_polled;
    struct client client;
    uv_poll_t poll;
    uv_timer_t timer; /* until a rank that does not run yet is asked again */
    uv_signal_t resized;
    int fd;
    bool is_raw; /* the terminal is, and is to be put back */
    struct termios before;
    uint32_t escapes;
    uint64_t escape_at_us;
    uint64_t job_id;
    struct feed feed;
};

void stdin_feed_open(struct stdin_feed *input, const struct stdin_feed_options *options);
/* The job starts or runs in this generation. */
void stdin_feed_job(struct stdin_feed *input, uint64_t job_id, uint32_t generation);
/* Puts the terminal back. The handles are free after the loop's next turn. A second call does nothing. */
void stdin_feed_close(struct stdin_feed *input);

#endif
