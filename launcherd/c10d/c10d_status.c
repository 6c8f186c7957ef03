#include "launcherd/c10d/c10d_status.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "common/limits.h"
#include "common/utf8.h"

#define MISSING_SHOWN 8u
#define KEY_SHOWN_BYTES 200u

static double seconds_since(uint64_t since_us, uint64_t now_us)
{
    const uint64_t ms = now_us > since_us ? (now_us - since_us) / 1000 : 0;

    return (double)ms / 1000;
}

/* The host of "10.0.0.2:41235". An IPv4 address that came as IPv6 loses its prefix. */
static void host_of(const char *label, char host[ADDRESS_BYTES_MAX])
{
    static const char mapped[] = "::ffff:";
    const char *end = strrchr(label, ':');
    size_t bytes = end == NULL ? strlen(label) : (size_t)(end - label);

    if (bytes >= 2 && label[0] == '[') {
        label++;
        bytes -= 2;
    }
    if (bytes > sizeof mapped - 1 && strncmp(label, mapped, sizeof mapped - 1) == 0 &&
        memchr(label, '.', bytes) != NULL) {
        label += sizeof mapped - 1;
        bytes -= sizeof mapped - 1;
    }
    if (bytes >= ADDRESS_BYTES_MAX)
        bytes = ADDRESS_BYTES_MAX - 1;
    memcpy(host, label, bytes);
    host[bytes] = '\0';
}

/* The name of the node with that address; "" if two nodes share it. */
static const char *node_of(const struct msg_pair_list *nodes, const char *host)
{
    const char *found = "";

    for (uint32_t i = 0; i < nodes->count; i++) {
        const char *address = nodes->items[i].value;
        size_t bytes = strcspn(address, "%");

        if (strlen(host) != bytes || strncmp(address, host, bytes) != 0)
            continue;
        if (found[0] != '\0')
            return "";
        found = nodes->items[i].name;
    }
    return found;
}

static bool add_missing(cJSON *to, const struct c10d *core, uint32_t client)
{
    cJSON *list = cJSON_AddArrayToObject(to, "missing");
    char shown[KEY_SHOWN_BYTES];
    const char *key;
    size_t byte_count;
    uint32_t at = 0;

    for (uint32_t i = 0; list != NULL && i < MISSING_SHOWN &&
                         c10d_next_missing(core, client, &at, &key, &byte_count);
         i++) {
        size_t prefix = byte_count > 0 && key[0] == '/' ? 1 : 0;
        cJSON *item;

        utf8_printable(key + prefix, byte_count - prefix, shown, sizeof shown);
        item = cJSON_CreateString(shown);
        if (item == NULL || !cJSON_AddItemToArray(list, item))
            return false;
    }
    return list != NULL;
}

static bool add_client(cJSON *list, const struct c10d_server *server,
                       const struct msg_pair_list *nodes, const struct c10d_client_info *info,
                       uint64_t now_us)
{
    static const char *const words[] = {
        [C10D_WAITS_NOT] = "", [C10D_WAITS_FOR_KEYS] = "keys", [C10D_WAITS_AT_BARRIER] = "barrier"};
    char host[ADDRESS_BYTES_MAX];
    cJSON *one = cJSON_CreateObject();

    if (one == NULL || !cJSON_AddItemToArray(list, one))
        return false;
    host_of(c10d_server_peer(server, info->client), host);
    return cJSON_AddNumberToObject(one, "client", info->client) != NULL &&
           cJSON_AddStringToObject(one, "address", host) != NULL &&
           cJSON_AddStringToObject(one, "node", node_of(nodes, host)) != NULL &&
           cJSON_AddNumberToObject(one, "pid", info->pid) != NULL &&
           cJSON_AddNumberToObject(one, "connected_s", seconds_since(info->connected_us, now_us)) !=
               NULL &&
           cJSON_AddStringToObject(one, "waits", words[info->waits]) != NULL &&
           cJSON_AddNumberToObject(one, "waits_s",
                                   info->waits == C10D_WAITS_NOT
                                       ? 0
                                       : seconds_since(info->waits_since_us, now_us)) != NULL &&
           add_missing(one, c10d_server_core(server), info->client) &&
           cJSON_AddNumberToObject(one, "missing_count", info->missing_keys) != NULL;
}

/* Adds the clients that wait, or the others, while there is room. */
static bool add_clients(cJSON *list, const struct c10d_server *server,
                        const struct msg_pair_list *nodes, uint64_t now_us, bool that_wait,
                        uint32_t *room)
{
    const struct c10d *core = c10d_server_core(server);
    struct c10d_client_info info;
    bool all = true;

    for (uint32_t from = 0; all && *room > 0 && c10d_next_client(core, from, &info);
         from = info.client + 1) {
        if ((info.waits != C10D_WAITS_NOT) != that_wait)
            continue;
        all = add_client(list, server, nodes, &info, now_us);
        --*room;
    }
    return all;
}

char *c10d_status(const struct c10d_server *server, const struct msg_pair_list *nodes,
                  uint64_t now_us)
{
    const struct c10d_totals totals = c10d_totals(c10d_server_core(server));
    uint32_t room = C10D_STATUS_CLIENTS_MAX;
    uint32_t left_out = totals.clients > room ? totals.clients - room : 0;
    cJSON *status = cJSON_CreateObject(), *list = NULL;
    char *text = NULL;

    if (status != NULL && cJSON_AddStringToObject(status, "schema", "ddp.store.v1") != NULL &&
        cJSON_AddStringToObject(status, "address", c10d_server_bound(server)) != NULL &&
        cJSON_AddNumberToObject(status, "keys", (double)totals.keys) != NULL &&
        cJSON_AddNumberToObject(status, "bytes", (double)totals.bytes) != NULL &&
        cJSON_AddNumberToObject(status, "clients_left_out", left_out) != NULL)
        list = cJSON_AddArrayToObject(status, "clients");
    if (list != NULL && add_clients(list, server, nodes, now_us, true, &room) &&
        add_clients(list, server, nodes, now_us, false, &room))
        text = cJSON_PrintUnformatted(status);
    cJSON_Delete(status);
    return text;
}
