#include "common/msg_version.h"

#include <stddef.h>
#include <string.h>

/* Fields that are not in version 1. Of version 2 only those between workers and shims: a peer of version 1 is
 * refused at its hello, and a program that was linked with libddp of version 1 says none. */
static const struct {
    const char *shape, *field;
    uint32_t since;
} later_fields[] = {
    {"progress", "phase", 2},
    {"progress", "doing", 2},
    {"progress", "collectives", 2},
    {"progress", "in_collective", 2},
    {"progress", "again_us", 2},
    {"progress", "timed_steps", 2},
    {"progress", "step_us", 2},
    {"progress", "data_us", 2},
    {"progress", "compute_us", 2},
    {"progress", "update_us", 2},
    {"progress", "wait_us", 2},
    {"node", "reconnects", 3},
    {"node", "notice", 3},
    {"node", "refused_ms", 3},
    {"node_hello", "schema", 3},
    {"node_hello", "machine_id", 3},
    {"node_hello", "state_id", 3},
    {"node_hello", "seen", 3},
    {"node_hello", "up_us", 3},
    {"node_welcome", "schema", 3},
    {"client_hello", "schema", 3},
    {"client_welcome", "schema", 3},
    {"shim_hello", "schema", 3},
    {"shim_hello", "lease_over", 3},
    {"shim_report", "notice", 3},
    {"shim_report", "failed_by_peer", 4},
    {"beat", "silent", 3},
    {"beat_shim", "unseen", 3},
    {"start", "submitted_ms", 3},
    {"warm", "submitted_ms", 3},
    {"log_read", "submitted_ms", 3},
    {"submit", "restarts_given", 3},
    {"server_info", "is_of_past", 3},
    {"server_info", "past_why", 3},
    {"server_info", "keys_lost_ms", 3},
    {"refer", "why", 3},
    {"why_info", "avoided", 3},
};

/* Messages that are not in version 1, likewise. */
static const struct {
    enum msg_type type;
    uint32_t since;
} later_messages[] = {
    {MSG_TYPE_WORKER_STOP, 2},
    {MSG_TYPE_KEYS_CHECKED, 3},
};

/* Launch options (common/launch.h) that are not in version 1, likewise. */
static const struct {
    const char *name;
    uint32_t since;
} later_options[] = {
    {"umask", 4},
    {"limits", 4},
    {"streams", 4},
};

uint32_t msg_pair_since(const char *field, const char *name)
{
    for (size_t i = 0; i < sizeof later_options / sizeof later_options[0]; i++)
        if (strcmp(later_options[i].name, name) == 0 && strcmp(field, "launch") == 0)
            return later_options[i].since;
    return 1;
}

uint32_t msg_type_since(enum msg_type type)
{
    for (size_t i = 0; i < sizeof later_messages / sizeof later_messages[0]; i++)
        if (later_messages[i].type == type)
            return later_messages[i].since;
    return 1;
}

uint32_t msg_field_since(const char *shape, const char *field)
{
    for (size_t i = 0; i < sizeof later_fields / sizeof later_fields[0]; i++)
        if (strcmp(later_fields[i].field, field) == 0 && strcmp(later_fields[i].shape, shape) == 0)
            return later_fields[i].since;
    return 1;
}

size_t msg_frame_max(size_t bytes, uint32_t version)
{
    if (version >= 4 || bytes <= FRAME_CHUNK_BYTES_MAX)
        return bytes;
    return bytes == FRAME_SUBMIT_BYTES_MAX ? FRAME_CHUNK_BYTES_MAX : FRAME_LARGE_BYTES_MAX_3;
}

uint64_t msg_pairs_max(uint64_t count, uint32_t version)
{
    return version < 4 && count == ENV_MAX ? ENV_MAX_3 : count;
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
