#include "rendezvous/server/refused.h"

#include <stdio.h>
#include <string.h>

#include "common/name_order.h"

static bool is_fresh(const struct refused_node *node, uint64_t now_us)
{
    return node->name[0] != '\0' && now_us - node->at_us < REFUSED_FOR_US;
}

static struct refused_node *find(struct refused_nodes *refused, const char *name)
{
    for (uint32_t i = 0; i < REFUSED_NODES_MAX; i++)
        if (strcmp(refused->items[i].name, name) == 0)
            return &refused->items[i];
    return NULL;
}

/* A free place, or that of the node that has been silent for longest. */
static struct refused_node *make_room(struct refused_nodes *refused)
{
    struct refused_node *oldest = &refused->items[0];

    for (uint32_t i = 0; i < REFUSED_NODES_MAX; i++) {
        if (refused->items[i].name[0] == '\0')
            return &refused->items[i];
        if (refused->items[i].at_us < oldest->at_us)
            oldest = &refused->items[i];
    }
    return oldest;
}

void refused_note(struct refused_nodes *refused, const struct msg_node_hello *hello,
                  const char *why, uint64_t now_us, int64_t now_ms)
{
    struct refused_node *node = find(refused, hello->name);
    const bool goes_on = node != NULL && is_fresh(node, now_us);

    if (node == NULL)
        node = make_room(refused);
    if (!goes_on)
        *node = (struct refused_node){.since_ms = now_ms};
    node->at_us = now_us;
    node->protocol = hello->protocol;
    node->pid = hello->pid;
    (void)snprintf(node->name, sizeof node->name, "%s", hello->name);
    (void)snprintf(node->address, sizeof node->address, "%s", hello->address);
    (void)snprintf(node->version, sizeof node->version, "%s", hello->version);
    (void)snprintf(node->why, sizeof node->why, "%s", why);
}

void refused_forget(struct refused_nodes *refused, const char *name)
{
    struct refused_node *node = find(refused, name);

    if (node != NULL)
        *node = (struct refused_node){.at_us = 0};
}

const struct refused_node *refused_find(const struct refused_nodes *refused, const char *name,
                                        uint64_t now_us)
{
    for (uint32_t i = 0; i < REFUSED_NODES_MAX; i++)
        if (is_fresh(&refused->items[i], now_us) && strcmp(refused->items[i].name, name) == 0)
            return &refused->items[i];
    return NULL;
}

const char *refused_after(const struct refused_nodes *refused, const char *name, const char *end,
                          uint64_t now_us)
{
    const char *first = NULL;

    for (uint32_t i = 0; i < REFUSED_NODES_MAX; i++) {
        const char *other = refused->items[i].name;

        if (is_fresh(&refused->items[i], now_us) && name_order(other, name) > 0 &&
            (end == NULL || name_order(other, end) < 0) &&
            (first == NULL || name_order(other, first) < 0))
            first = other;
    }
    return first;
}

void refused_add(const struct refused_node *node, uint64_t now_us, struct part_node *out)
{
    out->refused_ms = node->since_ms;
    out->notice = node->why;
    if (out->state == NODE_UP)
        return; /* another launcherd of that name: what is up stays what it is */
    out->address = node->address;
    out->version = node->version;
    out->protocol = node->protocol;
    out->pid = node->pid;
    if (out->beat_age_us < 0)
        out->beat_age_us = (int64_t)(now_us - node->at_us);
}
