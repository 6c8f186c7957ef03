#include "common/io/server_list.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "common/io/address.h"

#define HOST_BYTES_MAX 256u

static_assert(SERVERS_MAX < 32, "a bit for each address");

static bool is_address(const char *text)
{
    char host[HOST_BYTES_MAX];
    in_port_t port;

    return address_is_unix(text) || address_split_tcp(text, host, sizeof host, &port);
}

/* Whether an address begins at `text`; other text may follow it. */
static bool begins_address(const char *text)
{
    char first[HOST_BYTES_MAX + 16];
    const size_t byte_count = strcspn(text, ",");

    if (byte_count >= sizeof first)
        return address_is_unix(text);
    memcpy(first, text, byte_count);
    first[byte_count] = '\0';
    return is_address(first);
}

/* The comma after the address that begins at `text`, or its end. */
static char *end_of(char *text)
{
    char *end = strchr(text, ',');

    while (end != NULL && address_is_unix(text) && !begins_address(end + 1))
        end = strchr(end + 1, ',');
    return end != NULL ? end : text + strlen(text);
}

enum status server_list_parse(struct server_list *list, const char *text, struct err *err)
{
    char *at = list->text, *end;
    bool is_last;

    memset(list, 0, sizeof *list);
    if (strlen(text) >= sizeof list->text)
        return err_set(err, STATUS_TOO_BIG, 0, "the addresses of servers have more than %zu bytes",
                       sizeof list->text - 1);
    memcpy(list->text, text, strlen(text) + 1);
    do {
        end = end_of(at);
        is_last = *end == '\0';
        *end = '\0';
        if (list->count == SERVERS_MAX)
            return err_set(err, STATUS_TOO_BIG, 0, "more than %u addresses of servers",
                           SERVERS_MAX);
        if (!is_address(at))
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "\"%.80s\" is no address: expected unix:PATH or HOST:PORT (an IPv6 "
                           "address in brackets), several with commas between them",
                           at);
        list->starts[list->count++] = (uint32_t)(at - list->text);
        at = end + 1;
    } while (!is_last);
    return STATUS_OK;
}

const char *server_list_at(const struct server_list *list, uint32_t i)
{
    return list->text + list->starts[i];
}

const char *server_list_address(const struct server_list *list)
{
    return list->is_referred ? list->leader : server_list_at(list, list->current);
}

static bool find(const struct server_list *list, const char *address, uint32_t *index)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (strcmp(server_list_at(list, i), address) == 0) {
            *index = i;
            return true;
        }
    return false;
}

bool server_list_is_foreign(const struct server_list *list)
{
    return list->is_referred;
}

void server_list_failed(struct server_list *list)
{
    list->failures++;
    if (list->is_referred)
        list->is_referred = false; /* `current` referred us to the leader: continue after it */
    list->current = (list->current + 1) % list->count;
}

bool server_list_refused(struct server_list *list)
{
    const uint32_t before = list->refused;

    list->refused |= 1u << list->current;
    return list->refused != before;
}

bool server_list_all_refused(const struct server_list *list)
{
    return list->refused == (1u << list->count) - 1;
}

bool server_list_referred(struct server_list *list, const char *leader)
{
    if (leader[0] == '\0' || strlen(leader) >= sizeof list->leader || !is_address(leader) ||
        strcmp(leader, server_list_address(list)) == 0) {
        server_list_failed(list);
        return false;
    }
    list->failures++;
    list->is_referred = !find(list, leader, &list->current);
    (void)snprintf(list->leader, sizeof list->leader, "%s", leader);
    return ++list->referrals <= SERVER_LIST_HASTE;
}

void server_list_reached(struct server_list *list)
{
    list->failures = list->referrals = list->refused = 0;
}

bool server_list_all_failed(const struct server_list *list)
{
    return list->failures >= list->count;
}

bool server_list_has(const char *text, const char *address)
{
    struct server_list list;
    uint32_t index;
    struct err err;

    return server_list_parse(&list, text, &err) == STATUS_OK && find(&list, address, &index);
}
