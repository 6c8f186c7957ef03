/* What goes from our stdin to one rank: bytes that were read and are not taken yet, one request at a time. Pure.
 *
 * A request is sent again, at the same offset, until it is answered, so nothing is lost and nothing
 * comes twice. The first generation that has taken a byte, or the end, gets all of it: a later one
 * starts with its stdin at the end, because nobody knows what the program had done with the rest. Only
 * a terminal goes on with what is typed from then on. */
#ifndef DDPCTL_FEED_H
#define DDPCTL_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/msg.h"

struct feed {
    bool is_terminal;
    uint32_t rank;
    uint32_t generation; /* 0: none runs yet */
    uint64_t base;       /* offset of the first byte here */
    uint32_t count;
    uint8_t bytes[STDIN_BYTES_MAX];
    bool is_end;  /* nothing is read any more */
    bool is_over; /* this generation takes no more */
    bool in_flight;
    bool was_given;         /* this generation may have taken something */
    uint32_t rows, columns; /* to be told; 0: nothing new */
};

enum feed_answer {
    FEED_GOES_ON,
    FEED_WAITS, /* not now: ask again a little later */
    FEED_OVER,  /* the rank takes no more */
};

/* Bytes that feed_add takes now. */
uint32_t feed_room(const struct feed *feed);
void feed_add(struct feed *feed, const uint8_t *bytes, uint32_t byte_count);
void feed_end(struct feed *feed);
void feed_size(struct feed *feed, uint32_t rows, uint32_t columns);
/* The job is at this generation. True: its rank gets an empty stdin, since the one before had some of it. */
bool feed_generation(struct feed *feed, uint32_t generation);
/* The next request, without the job; false: none now. Its bytes are those of `feed`. */
bool feed_next(struct feed *feed, struct msg_input *request);
enum feed_answer feed_take(struct feed *feed, const struct msg_input_state *state);
/* The connection was lost: what was sent may have been taken, or not. */
void feed_lost(struct feed *feed);

#endif
