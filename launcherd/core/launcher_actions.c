#include "launcherd/core/launcher_actions.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

void launcher_actions_begin(struct launcher_actions *actions)
{
    actions->count = 0;
    actions->rank_rows = 0;
    actions->log_count = 0;
    actions->event_count = 0;
    actions->has_beat = false;
}

struct launcher_action *launcher_add(struct launcher_actions *actions,
                                     struct launcher_action action)
{
    assert(actions->count < LAUNCHER_ACTIONS_MAX);
    actions->items[actions->count] = action;
    return &actions->items[actions->count++];
}

struct msg *launcher_send_server(struct launcher_actions *actions, enum msg_type type)
{
    return &launcher_add(actions, (struct launcher_action){.type = LAUNCHER_SEND_SERVER,
                                                           .msg = {.type = type}})
                ->msg;
}

struct msg *launcher_send_shim(struct launcher_actions *actions, const struct launcher_shim *shim,
                               enum msg_type type)
{
    return &launcher_add(actions, (struct launcher_action){.type = LAUNCHER_SEND_SHIM,
                                                           .job_id = shim->job_id,
                                                           .generation = shim->generation,
                                                           .msg = {.type = type}})
                ->msg;
}

void launcher_log(struct launcher_actions *actions, const char *format, ...)
{
    assert(actions->log_count < LAUNCHER_LOGS_MAX);
    char *text = actions->log_texts[actions->log_count++];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof actions->log_texts[0], format, args);
    va_end(args);
    launcher_add(actions, (struct launcher_action){.type = LAUNCHER_LOG, .text = text});
}

void launcher_send_event(struct launcher_actions *actions, uint32_t slot, const char *text)
{
    assert(actions->event_count < LAUNCHER_EVENTS_MAX);
    char *copy = actions->event_texts[actions->event_count++];
    (void)snprintf(copy, sizeof actions->event_texts[0], "%s", text);
    struct msg_node_event *event = &launcher_send_server(actions, MSG_TYPE_NODE_EVENT)->node_event;
    event->slot = slot;
    event->text = copy;
}
