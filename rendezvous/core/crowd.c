#include "rendezvous/core/crowd.h"

#include <string.h>

#define LOOK_AGAIN_US 1000u /* what has come is read by then */

static bool is_of(const struct crowd_place *place, const struct crowd_place *other)
{
    return place->group[0] == other->group[0] && place->group[1] == other->group[1];
}

static uint32_t count_of(const struct crowd_place *places, uint32_t count,
                         const struct crowd_place *one)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < count; i++)
        found += is_of(&places[i], one);
    return found;
}

/* Whether `one` goes before `other`, which is older. */
static bool is_worse(const struct crowd_place *one, const struct crowd_place *other)
{
    return !one->has_sent && other->has_sent;
}

/* Of the groups with `least` places or more; the newcomer is the last. */
static uint32_t choose(const struct crowd_place *places, uint32_t count, uint32_t least,
                       const struct crowd_limits *limits, uint64_t now_us, uint64_t *again_us)
{
    uint32_t chosen = CROWD_NONE;
    bool any_unread = false;

    *again_us = now_us + LOOK_AGAIN_US;
    for (uint32_t i = 0; i + 1 < count; i++) {
        const struct crowd_place *place = &places[i];

        if (least > 1 && count_of(places, count, place) < least)
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

static uint32_t most_crowded(const struct crowd_place *places, uint32_t count)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t found = count_of(places, count, &places[i]);

        most = found > most ? found : most;
    }
    return most;
}

uint32_t crowd_choose(const struct crowd_place *places, uint32_t count,
                      const struct crowd_limits *limits, uint64_t now_us, uint64_t *again_us)
{
    uint32_t of_group, chosen;

    *again_us = 0;
    if (count == 0)
        return CROWD_NONE;
    of_group = count_of(places, count, &places[count - 1]);
    if (count <= limits->places_max && of_group <= limits->group_max)
        return CROWD_NONE;
    chosen =
        choose(places, count, of_group > limits->group_max ? of_group : most_crowded(places, count),
               limits, now_us, again_us);
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
