/* Which connection makes room when too many have not said who they are. Pure.
 *
 * A newcomer always gets in, so that nobody keeps others out by holding places: an older connection of the same group (an
 * address, a principal, or a local user) is closed for it, or one of the most crowded group. Whoever sends at once what is expected has
 * left the crowd before it is old enough to be chosen. If all are too young, no further ones are taken until one is not:
 * that bounds how many come and go in a second, and a flood delays the others by that time alone. */
#ifndef RENDEZVOUS_CORE_CROWD_H
#define RENDEZVOUS_CORE_CROWD_H

#include <stdbool.h>
#include <stdint.h>

#define CROWD_NONE UINT32_MAX
#define CROWD_PLACES_MAX 1024u

struct crowd_place {
    uint64_t group[2];
    uint64_t since_us;
    bool has_sent;  /* a part of what is expected of it */
    bool is_unread; /* something has come that we have not looked at: never chosen */
};

struct crowd_limits {
    uint32_t places_max, group_max;
    uint64_t young_us; /* one that is younger is not chosen */
};

/* `places`: the oldest first; the last is the newcomer, which is not chosen. Returns the index of the one to be closed.
 * CROWD_NONE: the limits hold and `again_us` is 0, or nobody can be chosen before `again_us`. */
uint32_t crowd_choose(const struct crowd_place *places, uint32_t count,
                      const struct crowd_limits *limits, uint64_t now_us, uint64_t *again_us);

/* The group of a network address (as IPv6: ::ffff:a.b.c.d): itself, but the /64 of an IPv6 address, since one machine may
 * have all addresses of that. */
void crowd_group_of(const uint8_t address[16], uint64_t group[2]);

#endif
