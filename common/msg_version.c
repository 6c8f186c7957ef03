#include "common/msg_version.h"

#include <stddef.h>
#include <string.h>

/* Fields that are not in version 1. */
static const struct {
    const char *shape, *field;
    uint32_t since;
} later_fields[] = {
    {"node_welcome", "protocol", 2},         {"client_welcome", "protocol", 2},
    {"shim_report", "failed_class", 2},      {"log_data", "size", 2},
    {"job", "restarts_without_progress", 2}, {"log_read", "what", 2},
};

uint32_t msg_field_since(const char *shape, const char *field)
{
    for (size_t i = 0; i < sizeof later_fields / sizeof later_fields[0]; i++)
        if (strcmp(later_fields[i].field, field) == 0 && strcmp(later_fields[i].shape, shape) == 0)
            return later_fields[i].since;
    return 1;
}

bool msg_protocol_is_near(uint32_t own, uint32_t peer)
{
    return own <= peer ? peer - own <= 1 : own - peer <= 1;
}

bool msg_says_protocol(enum msg_type type)
{
    return type == MSG_TYPE_NODE_HELLO || type == MSG_TYPE_CLIENT_HELLO ||
           type == MSG_TYPE_SHIM_HELLO || type == MSG_TYPE_NODE_WELCOME ||
           type == MSG_TYPE_CLIENT_WELCOME;
}

uint32_t msg_hello_protocol(const struct msg *msg)
{
    if (msg->type == MSG_TYPE_NODE_HELLO)
        return msg->node_hello.protocol;
    if (msg->type == MSG_TYPE_CLIENT_HELLO)
        return msg->client_hello.protocol;
    if (msg->type == MSG_TYPE_SHIM_HELLO)
        return msg->shim_hello.protocol;
    return 0;
}

bool msg_wants_first_protocol(const struct msg_error *error, uint32_t own)
{
    return own == 2 && strcmp(error->code, "refused") == 0 &&
           strstr(error->message, " speaks protocol 2, ") != NULL &&
           strstr(error->message, ") speaks 1") != NULL;
}
