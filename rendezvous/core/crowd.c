#include "rendezvous/core/crowd.h"

#include <assert.h>
#include <string.h>

#define SLOTS (2 * CROWD_PLACES_MAX)
#define FACTOR UINT64_C(0x9e3779b97f4a7c15) /* 2^64 / the golden ratio: Fibonacci hashing */
#define LOOK_AGAIN_US 1000u                 /* what has come is read by then */

static bool is_of(const struct crowd_place *place, const struct crowd_place *other)
{
    return place->group[0] == other->group[0] && place->group[1] == other->group[1];
}

static uint32_t slot_of(const struct crowd_place *place)
{
    const uint64_t mixed = (place->group[0] ^ place->group[1] * FACTOR) * FACTOR;

    return (uint32_t)(mixed >> 32) % SLOTS;
}

/* How many places each one's group has: counts[i] is that of places[i]'s. A table by hash, since this is done for each
 * newcomer of a flood. */
static void count_groups(const struct crowd_place *places, uint32_t count, uint16_t *counts)
{
    uint16_t first[SLOTS] = {0}, found[CROWD_PLACES_MAX]; /* first: one more than its index */
    uint32_t slot;

    assert(count <= CROWD_PLACES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        slot = slot_of(&places[i]);
        while (first[slot] != 0 && !is_of(&places[first[slot] - 1], &places[i]))
            slot = (slot + 1) % SLOTS;
        if (first[slot] == 0) {
            first[slot] = (uint16_t)(i + 1);
            counts[i] = 0;
        }
        found[i] = (uint16_t)(first[slot] - 1);
        counts[found[i]]++;
    }
    for (uint32_t i = 0; i < count; i++)
        counts[i] = counts[found[i]];
}

/* Whether `one` goes before `other`, which is older. */
static bool is_worse(const struct crowd_place *one, const struct crowd_place *other)
{
    return !one->has_sent && other->has_sent;
}

/* Of the groups with `least` places or more; the newcomer is the last. */
static uint32_t choose(const struct crowd_place *places, const uint16_t *counts, uint32_t count,
                       uint32_t least, const struct crowd_limits *limits, uint64_t now_us,
                       uint64_t *again_us)
{
    uint32_t chosen = CROWD_NONE;
    bool any_unread = false;

    *again_us = now_us + LOOK_AGAIN_US;
    for (uint32_t i = 0; i + 1 < count; i++) {
        const struct crowd_place *place = &places[i];

        if (counts[i] < least)
            continue;
        if (now_us - place->since_us < limits->young_us) { /* so are those after it */
            if (!any_unread)
                *again_us = place->since_us + limits->young_us;
            break;
        }
        any_unread = any_unread || place->is_unread;
        if (place->is_unread)
            continue;
        if (chosen == CROWD_NONE || is_worse(place, &places[chosen]))
            chosen = i;
    }
    return chosen;
}

uint32_t crowd_choose(const struct crowd_place *places, uint32_t count,
                      const struct crowd_limits *limits, uint64_t now_us, uint64_t *again_us)
{
    uint16_t counts[CROWD_PLACES_MAX];
    uint32_t of_group, least, chosen;

    *again_us = 0;
    if (count == 0)
        return CROWD_NONE;
    count_groups(places, count, counts);
    of_group = least = counts[count - 1];
    if (count <= limits->places_max && of_group <= limits->group_max)
        return CROWD_NONE;
    for (uint32_t i = 0; i < count && of_group <= limits->group_max; i++)
        least = counts[i] > least ? counts[i] : least;
    chosen = choose(places, counts, count, least, limits, now_us, again_us);
    if (chosen != CROWD_NONE)
        *again_us = 0;
    return chosen;
}

void crowd_group_of(const uint8_t address[16], uint64_t group[2])
{
    static const uint8_t ipv4[12] = {[10] = 0xff, [11] = 0xff}; /* RFC 4291, section 2.5.5.2 */

    memcpy(group, address, 16);
    if (memcmp(address, ipv4, sizeof ipv4) != 0)
        group[1] = 0;
}
