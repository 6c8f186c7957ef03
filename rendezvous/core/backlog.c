#include "rendezvous/core/backlog.h"

bool backlog_waits(uint64_t unsent_bytes)
{
    return unsent_bytes > 0;
}

static bool is_slower(const struct backlog_conn *one, const struct backlog_conn *other)
{
    return one->moved_us != other->moved_us ? one->moved_us < other->moved_us
                                            : one->bytes > other->bytes;
}

struct backlog_view backlog_look(const struct backlog_conn *conns, uint32_t count, uint64_t user,
                                 uint64_t all_bytes)
{
    const uint64_t limit =
        all_bytes > BACKLOG_ALL_BYTES_MAX ? BACKLOG_SHARE_BYTES_MAX : BACKLOG_USER_BYTES_MAX;
    struct backlog_view view = {.slowest = BACKLOG_NONE};
    uint32_t slowest = BACKLOG_NONE;
    uint64_t closing_bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (conns[i].user != user || conns[i].bytes == 0)
            continue;
        if (conns[i].is_closing) {
            closing_bytes += conns[i].bytes;
            continue;
        }
        view.user_bytes += conns[i].bytes;
        if (slowest == BACKLOG_NONE || is_slower(&conns[i], &conns[slowest]))
            slowest = i;
    }
    if (view.user_bytes > limit)
        view.slowest = slowest;
    view.is_full = view.user_bytes + closing_bytes > 2 * limit;
    return view;
}
