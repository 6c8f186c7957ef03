#include "launcherd/process/signal_rule.h"

#include <assert.h>

static bool is_root(const struct signal_process *process)
{
    return process->parent == SIGNAL_ROOT;
}

static bool is_below(const struct signal_process *list, uint32_t index, uint32_t top)
{
    int32_t at = (int32_t)index;

    while (at > (int32_t)top)
        at = list[at].parent;
    return at == (int32_t)top;
}

/* Itself included. */
static bool answers_below(const struct signal_process *list, uint32_t count, uint32_t top)
{
    for (uint32_t i = top; i < count; i++)
        if (list[i].answers && is_below(list, i, top))
            return true;
    return false;
}

/* Whether what the process has started is looked at, too. */
static bool is_passed(const struct signal_process *process, enum signal_wave wave)
{
    if (wave == SIGNAL_LATE)
        return is_root(process) || !process->is_copy;
    return !process->has_it && (!process->answers || process->is_shell || process->is_relay);
}

/* Whether one that answers writes what it reads, itself or through others. */
static bool reads_saver(const struct signal_process *list, uint32_t count, uint32_t index)
{
    int32_t at = list[index].writer;

    for (uint32_t i = 0; at != SIGNAL_ROOT && i < count; i++) { /* two may read from each other */
        if (list[at].answers)
            return true;
        at = list[at].writer;
    }
    return false;
}

/* Whether the parent's trap decides what it gets. */
static bool is_of_trap(const struct signal_process *list, uint32_t index, enum signal_wave wave)
{
    const struct signal_process *process = &list[index];

    return wave == SIGNAL_FIRST && process->is_background && !is_root(process) &&
           list[process->parent].is_shell && list[process->parent].answers;
}

static bool is_wanted(const struct signal_process *list, uint32_t count, uint32_t index,
                      enum signal_wave wave)
{
    const struct signal_process *process = &list[index];

    if (process->has_it || process->is_relay)
        return false;
    if (wave == SIGNAL_WARN)
        return process->answers;
    if (process->lost_writer || reads_saver(list, count, index))
        return false;
    if (wave == SIGNAL_LATE)
        return process->answers && (is_root(process) || !process->is_copy);
    return !process->reads_others || answers_below(list, count, index);
}

static bool is_chosen_below(const struct signal_process *list, uint32_t count, uint32_t top)
{
    for (uint32_t i = top; i < count; i++)
        if (list[i].is_chosen && is_below(list, i, top))
            return true;
    return false;
}

void signal_rule(struct signal_process *list, uint32_t count, enum signal_wave wave)
{
    bool reached[SIGNAL_RULE_MAX];

    assert(count <= SIGNAL_RULE_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const int32_t parent = list[i].parent;

        assert(parent == SIGNAL_ROOT || (parent >= 0 && parent < (int32_t)i));
        reached[i] = is_root(&list[i]) || (reached[parent] && is_passed(&list[parent], wave) &&
                                           !is_of_trap(list, i, wave));
        list[i].is_chosen = reached[i] && is_wanted(list, count, i, wave);
    }
    for (uint32_t i = 0; i < count && wave == SIGNAL_WARN; i++)
        if (is_root(&list[i]) && !list[i].has_it && !is_chosen_below(list, count, i))
            list[i].is_chosen = true;
}
