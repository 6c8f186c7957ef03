#include "tests/lib/c10d_tools.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const struct c10d_limits tool_limits = {.clients_max = TOOL_CLIENTS_MAX,
                                        .keys_max = 1u << 21,
                                        .bytes_max = 1u << 30,
                                        .message_bytes_max = 32u << 20,
                                        .hello_us = 1000,
                                        .hash_seed = {1, 2}};

static void *resize(void *owner, void *bytes, size_t byte_count)
{
    struct c10d_tools *tools = owner;
    void *moved;

    if (byte_count == 0) {
        tools->blocks -= bytes != NULL;
        free(bytes);
        return NULL;
    }
    if (tools->allocations_left == 0)
        return NULL;
    if (tools->allocations_left != UINT64_MAX)
        tools->allocations_left--;
    moved = realloc(bytes, byte_count);
    tools->blocks += moved != NULL && bytes == NULL;
    return moved;
}

bool tools_try_open(struct c10d_tools *tools, const struct c10d_limits *limits,
                    uint64_t allocations)
{
    const struct c10d_heap heap = {.resize = resize, .owner = tools};

    memset(tools, 0, sizeof *tools);
    tools->allocations_left = allocations;
    tools->core = c10d_new(limits, &heap);
    return tools->core != NULL;
}

void tools_open(struct c10d_tools *tools, const struct c10d_limits *limits)
{
    const bool is_open = tools_try_open(tools, limits, UINT64_MAX);

    assert(is_open);
}

void tools_close(struct c10d_tools *tools)
{
    c10d_free(&tools->core);
    assert(tools->blocks == 0);
    for (uint32_t i = 0; i < TOOL_CLIENTS_MAX; i++)
        buf_free(&tools->got[i]);
}

static void step(struct c10d_tools *tools, struct c10d_event event)
{
    struct c10d_actions actions;

    event.now_us = tools->now_us;
    actions = c10d_step(tools->core, &event);
    for (size_t i = 0; i < actions.count; i++) {
        const struct c10d_action *action = &actions.items[i];
        const uint32_t client = action->client;

        assert(client < TOOL_CLIENTS_MAX && tools->is_open[client]);
        if (action->type == C10D_SEND) {
            assert(action->byte_count > 0);
            buf_add(&tools->got[client], action->bytes, action->byte_count);
        } else if (action->type == C10D_PAUSE) {
            tools->is_paused[client] = true;
        } else {
            tools->is_open[client] = false;
            tools->reason[client] = action->reason;
            tools->command[client] = action->command;
        }
    }
}

void tools_connect(struct c10d_tools *tools, uint32_t client)
{
    tools->is_open[client] = true;
    tools->is_paused[client] = false;
    step(tools, (struct c10d_event){.type = C10D_EVENT_CONNECTED, .client = client});
}

void tools_send(struct c10d_tools *tools, uint32_t client, const void *bytes, size_t byte_count)
{
    step(tools,
         (struct c10d_event){
             .type = C10D_EVENT_BYTES, .client = client, .bytes = bytes, .byte_count = byte_count});
}

void tools_event(struct c10d_tools *tools, enum c10d_event_type type, uint32_t client)
{
    if (type == C10D_EVENT_CLOSED)
        tools->is_open[client] = false;
    if (type == C10D_EVENT_DRAINED)
        tools->is_paused[client] = false;
    step(tools, (struct c10d_event){.type = type, .client = client});
}

static void add_number(struct buf *buf, uint64_t value, size_t byte_count)
{
    for (size_t i = 0; i < byte_count; i++)
        buf_add(buf, &(unsigned char){(unsigned char)(value >> (8 * i))}, 1);
}

void request_add(struct buf *buf, unsigned command, const char *fields, ...)
{
    const char *text;
    va_list args;

    add_number(buf, command, 1);
    va_start(args, fields);
    /* NOLINTBEGIN(clang-analyzer-valist.Uninitialized): clang-tidy 14 does not see va_start */
    while (*fields != '\0') {
        switch (*fields++) {
        case 'k':
        case 'b':
            text = va_arg(args, const char *);
            add_number(buf, strlen(text), 8);
            buf_add_text(buf, text);
            break;
        case '4':
            add_number(buf, va_arg(args, uint32_t), 4);
            break;
        default:
            add_number(buf, va_arg(args, uint64_t), 8);
        }
    }
    /* NOLINTEND(clang-analyzer-valist.Uninitialized) */
    va_end(args);
}
