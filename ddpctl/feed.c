#include "ddpctl/feed.h"

#include <assert.h>
#include <string.h>

uint32_t feed_room(const struct feed *feed)
{
    return feed->is_end || feed->in_flight ? 0 : STDIN_BYTES_MAX - feed->count;
}

void feed_add(struct feed *feed, const uint8_t *bytes, uint32_t byte_count)
{
    assert(byte_count <= feed_room(feed));
    memcpy(feed->bytes + feed->count, bytes, byte_count);
    feed->count += byte_count;
}

void feed_end(struct feed *feed)
{
    feed->is_end = true;
}

void feed_size(struct feed *feed, uint32_t rows, uint32_t columns)
{
    feed->rows = rows;
    feed->columns = columns;
}

void feed_probe(struct feed *feed)
{
    feed->probes = true;
}

bool feed_generation(struct feed *feed, uint32_t generation)
{
    bool is_cut = feed->was_given && !feed->is_terminal;

    if (generation == feed->generation)
        return false;
    assert(generation > feed->generation);
    feed->generation = generation;
    if (feed->was_given) {
        feed->base = 0;
        feed->count = 0;
    }
    feed->is_end = feed->is_end || is_cut;
    feed->is_over = feed->was_given = feed->in_flight = false;
    return is_cut;
}

bool feed_next(struct feed *feed, struct msg_input *request)
{
    if (feed->generation == 0 || feed->is_over || feed->in_flight ||
        (feed->count == 0 && !feed->is_end && feed->rows == 0 && !feed->probes))
        return false;
    *request = (struct msg_input){.generation = feed->generation,
                                  .rank = feed->rank,
                                  .offset = feed->base,
                                  .bytes = {feed->bytes, feed->count},
                                  .is_end = feed->is_end,
                                  .rows = feed->rows,
                                  .columns = feed->columns};
    feed->in_flight = true;
    return true;
}

enum feed_answer feed_take(struct feed *feed, const struct msg_input_state *state)
{
    uint64_t end = feed->base + feed->count;
    uint32_t taken = 0;

    if (!feed->in_flight)
        return feed->is_over ? FEED_OVER : FEED_GOES_ON;
    feed->in_flight = false;
    if (state->problem[0] == '\0') {
        feed->rows = feed->columns = 0;
        feed->probes = false;
        feed->was_given = feed->was_given || state->taken > 0 || state->is_closed;
    }
    if (state->taken > feed->base)
        taken = state->taken < end ? (uint32_t)(state->taken - feed->base) : feed->count;
    feed->count -= taken;
    feed->base += taken;
    memmove(feed->bytes, feed->bytes + taken, feed->count);
    if (state->is_closed) {
        feed->is_over = true;
        return FEED_OVER;
    }
    return state->problem[0] != '\0' || (taken == 0 && feed->count > 0) ? FEED_WAITS : FEED_GOES_ON;
}

void feed_lost(struct feed *feed)
{
    if (feed->in_flight)
        feed->was_given = true;
    feed->in_flight = false;
}
