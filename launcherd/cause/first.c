#include "launcherd/cause/first.h"

bool cause_is_of_others(enum cause_kind kind)
{
    return kind >= CAUSE_STOPPED && kind <= CAUSE_MISSING;
}

static bool is_before(const struct cause_rank *a, const struct cause_rank *b)
{
    return a->raised_us != b->raised_us ? a->raised_us < b->raised_us : a->order < b->order;
}

static bool is_any(enum cause_kind kind)
{
    (void)kind;
    return true;
}

static bool is_by_itself(enum cause_kind kind)
{
    return !cause_is_of_others(kind);
}

static bool says_who_is_missing(enum cause_kind kind)
{
    return kind == CAUSE_MISSING;
}

/* The first to fail of those with such a kind; -1: there is none. */
static int32_t first_failed(const struct cause_rank *ranks, uint32_t count,
                            bool (*is_such)(enum cause_kind kind))
{
    int32_t first = -1;

    for (uint32_t i = 0; i < count; i++)
        if (ranks[i].has_failed && is_such(ranks[i].kind) &&
            (first < 0 || is_before(&ranks[i], &ranks[first])))
            first = (int32_t)i;
    return first;
}

int32_t cause_first(const struct cause_rank *ranks, uint32_t count)
{
    int32_t first = first_failed(ranks, count, is_any);

    if (first >= 0 && cause_is_of_others(ranks[first].kind)) {
        const int32_t own = first_failed(ranks, count, is_by_itself);
        const int32_t says = first_failed(ranks, count, says_who_is_missing);

        first = own >= 0 ? own : says >= 0 ? says : first;
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
