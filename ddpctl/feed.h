/* Our stdin on its way to one rank: bytes that were read and have not been taken, sent one request at a time. Pure.
 *
 * A request is repeated at the same offset until it is answered, so nothing is lost or duplicated. The first
 * generation that has taken a byte, or the end, gets all input. A later generation starts with its stdin at the end,
 * because nobody knows what the program had done with the rest. Only a terminal continues, with what is typed from
 * then on. */
#ifndef DDPCTL_FEED_H
#define DDPCTL_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/msg.h"

struct feed {
    bool is_terminal;
    uint32_t rank;
    uint32_t generation; /* 0: none is running yet */
    uint64_t base;       /* offset of the first byte in `bytes` */
    uint32_t count;
    uint8_t bytes[STDIN_BYTES_MAX];
    bool is_end;  /* our stdin has ended */
    bool is_over; /* this generation takes no more input */
    bool in_flight;
    bool was_given;         /* this generation may have taken some input */
    bool probes;            /* ask, also without bytes, whether the rank takes input now */
    uint32_t rows, columns; /* terminal size to be sent; 0: unchanged */
};

enum feed_answer {
    FEED_GOES_ON,
    FEED_WAITS, /* the rank took nothing: try again a little later */
    FEED_OVER,  /* the rank takes no more input */
};

/* How many bytes feed_add can take now. */
uint32_t feed_room(const struct feed *feed);
void feed_add(struct feed *feed, const uint8_t *bytes, uint32_t byte_count);
void feed_end(struct feed *feed);
void feed_size(struct feed *feed, uint32_t rows, uint32_t columns);
/* The next answer that is no problem says that the rank takes input. */
void feed_probe(struct feed *feed);
/* The job is now in this generation. True: its rank gets an empty stdin, because the generation
 * before it took some input. */
bool feed_generation(struct feed *feed, uint32_t generation);
/* Fills the next request, except its job. False: none now. Its bytes belong to `feed`. */
bool feed_next(struct feed *feed, struct msg_input *request);
enum feed_answer feed_take(struct feed *feed, const struct msg_input_state *state);
/* The connection was lost: what was sent may or may not have been taken. */
void feed_lost(struct feed *feed);

#endif
