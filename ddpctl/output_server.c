/* The server and its standbys, as text and JSON. */
#include "ddpctl/json_parts.h"
#include "ddpctl/output.h"
#include "ddpctl/units.h"

void output_server(const struct msg_server_info *info, struct buf *out)
{
    char up[TEXT_BYTES], lost[TEXT_BYTES];

    duration_text(info->up_us, up);
    buf_printf(out, "rendezvous %s, up %s, %u job%s\n", info->version, up, info->jobs_active,
               info->jobs_active == 1 ? " waits or runs" : "s wait or run");
    for (uint32_t i = 0; i < info->servers.count; i++) {
        const struct part_server *server = &info->servers.items[i];

        buf_printf(out, "%-9s %s%s%s\n", server->leads ? "leads" : "stands by", server->address,
                   server->host[0] != '\0' ? " on " : "", server->host);
    }
    if (info->store_is_low)
        buf_add_text(out, "the disk or etcd under its store is nearly full: no jobs are taken\n");
    if (info->is_of_past)
        buf_printf(out,
                   "its state is of the past: %s. What was done since is lost (ddpctl events; "
                   "docs/operations.md)\n",
                   info->past_why[0] != '\0' ? info->past_why : "newer jobs were seen");
    time_text(info->keys_lost_ms, lost);
    if (info->keys_lost_ms != 0)
        buf_printf(
            out,
            "its keys are of the past (%s): removed ones may be valid again, new ones are not "
            "known; check ddpctl node list and user list, then ddpctl server --keys-checked\n",
            lost);
}

void output_server_json(const struct msg_server_info *info, struct buf *out)
{
    cJSON *object = object_new(), *server = cJSON_AddObjectToObject(object, "server");
    cJSON *servers;

    add_text(server, "version", info->version);
    add_number(server, "up_s", (double)info->up_us / 1e6);
    add_number(server, "jobs_active", info->jobs_active);
    add_number(server, "connections", info->connections);
    (void)cJSON_AddBoolToObject(server, "store_is_low", info->store_is_low);
    (void)cJSON_AddBoolToObject(server, "is_of_past", info->is_of_past);
    add_text(server, "past_why", info->past_why);
    add_time(server, "keys_lost_at", info->keys_lost_ms);
    add_known(server, "token", (double)info->token, info->token > 0);
    servers = cJSON_AddArrayToObject(object, "servers");
    for (uint32_t i = 0; i < info->servers.count; i++) {
        cJSON *item = cJSON_CreateObject();

        add_text(item, "address", info->servers.items[i].address);
        add_text(item, "host", info->servers.items[i].host);
        (void)cJSON_AddBoolToObject(item, "leads", info->servers.items[i].leads);
        (void)cJSON_AddItemToArray(servers, item);
    }
    object_print(object, out);
}
