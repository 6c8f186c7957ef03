#include "common/msg_version.h"

#include <stddef.h>
#include <string.h>

/* Fields that are not in version 1. */
static const struct {
    const char *shape, *field;
    uint32_t since;
} later_fields[] = {
    {"node_welcome", "protocol", 2},
    {"client_welcome", "protocol", 2},
    {"shim_report", "failed_class", 2},
    {"log_data", "size", 2},
    {"job", "restarts_without_progress", 2},
    {"log_read", "what", 2},
    {"shim_report", "error", 2},
    {"shim_report", "failed_oom", 2},
    {"shim_report", "failed_core", 2},
    {"shim_report", "warm_late", 2},
    {"start", "nodes", 2},
    {"submit", "launch", 2},
    {"start", "launch", 2},
    {"log_data", "runs", 2},
    {"submit", "nodes_min", 2},
    {"job", "nodes_min", 2},
    {"job", "nodes_max", 2},
    {"submit", "spares", 2},
    {"submit", "replace_stragglers", 2},
    {"submit", "hang_timeout_us", 2},
    {"submit", "warn_us", 2},
    {"submit", "warn_signal", 2},
    {"submit", "requeue_at_limit", 2},
    {"submit", "after", 2},
    {"submit", "array", 2},
    {"job", "array_job", 2},
    {"job", "array_index", 2},
    {"job", "array_count", 2},
    {"start", "array_job", 2},
    {"start", "array_index", 2},
    {"start", "array_count", 2},
    {"start", "array_min", 2},
    {"start", "array_max", 2},
    {"start", "warn_after_us", 2},
    {"start", "warn_signal", 2},
    {"job_info", "crashed_generation", 2},
    {"job_info", "crashed_rank", 2},
    {"node_hello", "drains_on_term", 2},
    {"beat", "leaving", 2},
    {"node", "protocol", 2},
    {"node", "drains_on_term", 2},
    {"job", "straggler", 2},
    {"job", "spares", 2},
    {"job", "spares_held", 2},
    {"job", "spares_warm", 2},
    {"job", "progress_generation", 2},
    {"beat", "warm", 2},
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
    {"node_hello", "schema", 3},
    {"node_hello", "machine_id", 3},
    {"node_hello", "state_id", 3},
    {"node_hello", "seen", 3},
    {"node_welcome", "schema", 3},
    {"client_hello", "schema", 3},
    {"client_welcome", "schema", 3},
    {"shim_hello", "schema", 3},
    {"shim_report", "notice", 3},
    {"beat", "silent", 3},
    {"start", "submitted_ms", 3},
    {"warm", "submitted_ms", 3},
    {"log_read", "submitted_ms", 3},
    {"submit", "restarts_given", 3},
    {"server_info", "is_of_past", 3},
};

/* Messages that are not in version 1. */
static const struct {
    enum msg_type type;
    uint32_t since;
} later_messages[] = {
    {MSG_TYPE_NODE_READ, 2},   {MSG_TYPE_NODE_ASK, 2},   {MSG_TYPE_NODE_DATA, 2},
    {MSG_TYPE_WHY_GET, 2},     {MSG_TYPE_WHY_INFO, 2},   {MSG_TYPE_INPUT, 2},
    {MSG_TYPE_INPUT_STATE, 2}, {MSG_TYPE_SERVER_GET, 2}, {MSG_TYPE_SERVER_INFO, 2},
    {MSG_TYPE_WORKER_STOP, 2}, {MSG_TYPE_REFER, 2},      {MSG_TYPE_LOOK, 2},
    {MSG_TYPE_LOOKED, 2},      {MSG_TYPE_WARM, 2},       {MSG_TYPE_COOL, 2},
};

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
