#include "rendezvous/core/reach.h"

#include <stdio.h>

#include "common/address_reach.h"
#include "rendezvous/core/identity.h"
#include "rendezvous/core/state.h"

void reach_hello(struct node *node, const char *at)
{
    (void)snprintf(node->called, sizeof node->called, "%s", at != NULL ? at : "");
}

/* Whether its launcherd runs on the server's machine: a tunnel, too, ends at a loopback address. */
static bool is_here(const struct rdzv *rdzv, const struct node *node)
{
    return node->called[0] == '\0' ||
           (address_reach_of(node->called) == ADDRESS_LOOPBACK && node->identity.boot != 0 &&
            node->identity.boot == identity_boot(rdzv->options.boot_id));
}

static bool is_for_others(const struct node *node)
{
    return node->address[0] != '\0' && address_reach_of(node->address) == ADDRESS_FOR_OTHERS;
}

static const struct node *node_of(const struct rdzv *rdzv, const struct job *job, uint32_t part)
{
    const uint16_t index = job->gang.parts[part].node;

    return index != NODE_NONE ? &rdzv->nodes[index] : NULL;
}

/* The address of the server's machine that the node uses. NULL: it shows none that others can use, too. */
static const char *address_here_of(const struct rdzv *rdzv, const struct node *node)
{
    if (node->called[0] != '\0' && address_reach_of(node->called) == ADDRESS_FOR_OTHERS)
        return node->called;
    return is_here(rdzv, node) && is_for_others(node) ? node->address : NULL;
}

/* NULL: no part of the generation shows one. */
static const char *address_here(const struct rdzv *rdzv, const struct job *job)
{
    const char *found = NULL;

    for (uint32_t i = 0; found == NULL && i < job->record.part_count; i++) {
        const struct node *node = node_of(rdzv, job, i);

        found = node != NULL ? address_here_of(rdzv, node) : NULL;
    }
    return found;
}

/* Whether its own word is not what others can use, and the server may know better. */
static bool is_to_be_told(const struct rdzv *rdzv, const struct node *node)
{
    return node->address[0] != '\0' && !is_for_others(node) && is_here(rdzv, node);
}

const char *reach_address(const struct rdzv *rdzv, const struct job *job, uint32_t part)
{
    const struct node *node = node_of(rdzv, job, part);
    const char *here;

    if (node == NULL)
        return "";
    here = is_to_be_told(rdzv, node) ? address_here(rdzv, job) : NULL;
    return here != NULL ? here : node->address;
}

const char *rdzv_address_for(const struct rdzv *rdzv, const char *name, const char *other)
{
    const struct node *node = roster_find(rdzv, name), *from = roster_find(rdzv, other);
    const char *here = NULL;

    if (node == NULL)
        return "";
    if (from != NULL && is_to_be_told(rdzv, node))
        here = address_here_of(rdzv, from);
    return here != NULL ? here : node->address;
}

bool reach_is_alone(const struct rdzv *rdzv, const struct node *node)
{
    if (node->address[0] == '\0' || is_for_others(node))
        return false;
    return address_reach_of(node->address) == ADDRESS_LINK_LOCAL || !is_here(rdzv, node);
}

/* Whether the two daemons run on one machine, where a loopback address is enough. */
static bool are_together(const struct rdzv *rdzv, const struct node *a, const struct node *b)
{
    return (is_here(rdzv, a) && is_here(rdzv, b)) ||
           (a->identity.boot != 0 && a->identity.boot == b->identity.boot);
}

static bool is_reached(const struct rdzv *rdzv, const struct job *job, uint32_t part)
{
    const enum address_reach reach = address_reach_of(reach_address(rdzv, job, part));
    const struct node *node = node_of(rdzv, job, part);

    if (node == NULL || node->address[0] == '\0' || reach != ADDRESS_LOOPBACK)
        return reach != ADDRESS_LINK_LOCAL;
    for (uint32_t i = 0; i < job->record.part_count; i++) {
        const struct node *other = node_of(rdzv, job, i);

        if (other != NULL && (is_for_others(other) || !are_together(rdzv, node, other)))
            return false;
    }
    return true;
}

bool reach_is_refused(const struct rdzv *rdzv, const struct job *job, uint32_t *part,
                      char why[REASON_BYTES_MAX])
{
    for (uint32_t i = 0; i < job->record.part_count && job->record.part_count > 1; i++) {
        if (is_reached(rdzv, job, i))
            continue;
        *part = i;
        (void)snprintf(why, REASON_BYTES_MAX,
                       "no other node reaches node %s: all that is known of its address is %s; "
                       "start its launcherd with --address ADDRESS or --interface NAME",
                       job->record.parts[i].node, reach_address(rdzv, job, i));
        return true;
    }
    return false;
}
