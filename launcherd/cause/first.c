#include "launcherd/cause/first.h"

bool cause_is_of_others(enum cause_kind kind)
{
    return kind == CAUSE_PEER || kind == CAUSE_WRAPPER || kind == CAUSE_STOPPED;
}

static bool is_before(const struct cause_rank *a, const struct cause_rank *b)
{
    return a->raised_us != b->raised_us ? a->raised_us < b->raised_us : a->order < b->order;
}

/* The first to fail; `by_itself`: not because of another one. */
static int32_t first_failed(const struct cause_rank *ranks, uint32_t count, bool by_itself)
{
    int32_t first = -1;

    for (uint32_t i = 0; i < count; i++)
        if (ranks[i].has_failed && !(by_itself && cause_is_of_others(ranks[i].kind)) &&
            (first < 0 || is_before(&ranks[i], &ranks[first])))
            first = (int32_t)i;
    return first;
}

int32_t cause_first(const struct cause_rank *ranks, uint32_t count)
{
    int32_t first = first_failed(ranks, count, false);

    if (first >= 0 && cause_is_of_others(ranks[first].kind)) {
        const int32_t own = first_failed(ranks, count, true);

        first = own >= 0 ? own : first;
    }
    for (uint32_t i = 0; first >= 0 && i < count; i++) {
        const bool is_earlier = ranks[i].raised_us < ranks[first].raised_us;

        if (ranks[i].is_running &&
            (is_earlier ? !cause_is_of_others(ranks[i].kind)
                        : ranks[i].kind == CAUSE_RAISED && cause_is_of_others(ranks[first].kind)))
            first = (int32_t)i;
    }
    return first;
}

bool cause_may_become_clear(const struct cause_rank *ranks, uint32_t count)
{
    const int32_t first = cause_first(ranks, count);
    bool any_runs = false;

    for (uint32_t i = 0; i < count; i++)
        any_runs = any_runs || ranks[i].is_running;
    return any_runs && first >= 0 && cause_is_of_others(ranks[first].kind);
}
