#include "rendezvous/core/actions.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

#include "common/utf8.h"

void actions_begin(struct output *out, struct rdzv_actions *actions, uint64_t now_us,
                   int64_t wall_ms)
{
    assert(out->reserved == 0); /* the step before has published all its changes */
    out->now_us = now_us;
    out->wall_ms = wall_ms;
    out->actions = actions;
    actions->count = 0;
    actions->timer_at_us = UINT64_MAX;
}

struct rdzv_action *action_add(struct output *out, enum rdzv_action_type type)
{
    struct rdzv_action *action;

    assert(out->actions != NULL && out->actions->count < RDZV_ACTIONS_MAX);
    action = &out->actions->items[out->actions->count++];
    memset(action, 0, sizeof *action);
    action->type = type;
    return action;
}

void text_format(char out[REASON_BYTES_MAX], const char *format, ...)
{
    va_list args;

    va_start(args, format);
    utf8_printable_format(out, REASON_BYTES_MAX, format, args);
    va_end(args);
}

__attribute__((format(printf, 3, 0))) static void
set_text(struct output *out, struct rdzv_action *action, const char *format, va_list args)
{
    ptrdiff_t index = action - out->actions->items;

    assert(index >= 0 && index < (ptrdiff_t)out->actions->count);
    utf8_printable_format(out->texts[index], sizeof out->texts[index], format, args);
    action->text = out->texts[index];
}

void action_text(struct output *out, struct rdzv_action *action, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    set_text(out, action, format, args);
    va_end(args);
}

void action_log(struct output *out, uint64_t job_id, uint32_t generation, const char *format, ...)
{
    struct rdzv_action *action = action_add(out, RDZV_LOG_EVENT);
    va_list args;

    action->job_id = job_id;
    action->generation = generation;
    va_start(args, format);
    set_text(out, action, format, args);
    va_end(args);
}

void action_reply_error(struct output *out, uint64_t client, enum status status, const char *format,
                        ...)
{
    struct rdzv_action *action = action_add(out, RDZV_REPLY_ERROR);
    va_list args;

    action->client = client;
    action->status = status;
    va_start(args, format);
    set_text(out, action, format, args);
    va_end(args);
}

bool actions_have_room(const struct output *out, uint32_t count)
{
    return out->actions->count + out->reserved + count <= RDZV_ACTIONS_MAX;
}

void actions_reserve(struct output *out, uint32_t count)
{
    assert(actions_have_room(out, count));
    out->reserved += count;
}

void actions_release(struct output *out, uint32_t count)
{
    assert(out->reserved >= count);
    out->reserved -= count;
}

void actions_wake_at(struct output *out, uint64_t at_us)
{
    if (at_us < out->actions->timer_at_us)
        out->actions->timer_at_us = at_us;
}

void actions_continue(struct output *out)
{
    actions_wake_at(out, out->now_us);
}
