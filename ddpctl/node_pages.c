#include "ddpctl/node_pages.h"

#include <stdlib.h>
#include <string.h>

#include "ddpctl/page.h"
#include "ddpctl/request.h"

#define PATIENCE_US 5000000u

/* Replaces `*text` by a copy in the arena. False: no memory, and `*text` is unchanged. */
static bool keep(struct node_pages *pages, const char **text)
{
    const char *copy = arena_text(&pages->arena, *text, strlen(*text));

    if (copy != NULL)
        *text = copy;
    return copy != NULL;
}

static bool keep_node(struct node_pages *pages, const struct part_node *node)
{
    struct part_node *kept = &pages->nodes[pages->node_count++];

    *kept = *node;
    return keep(pages, &kept->name) && keep(pages, &kept->address) &&
           keep(pages, &kept->drain_reason) && keep(pages, &kept->drained_by) &&
           keep(pages, &kept->version) && keep(pages, &kept->notice);
}

static bool keep_slot(struct node_pages *pages, const struct part_slot *slot)
{
    struct part_slot *kept = &pages->slots[pages->slot_count++];

    *kept = *slot;
    return keep(pages, &kept->node) && keep(pages, &kept->reason) && keep(pages, &kept->drained_by);
}

/* Makes room for the nodes and slots of one more page. */
static bool grow(struct node_pages *pages, const struct msg_nodes *page)
{
    struct part_node *nodes =
        realloc(pages->nodes, (pages->node_count + page->nodes.count + 1u) * sizeof *nodes);
    struct part_slot *slots =
        realloc(pages->slots, (pages->slot_count + page->slots.count + 1u) * sizeof *slots);

    pages->nodes = nodes != NULL ? nodes : pages->nodes;
    pages->slots = slots != NULL ? slots : pages->slots;
    return nodes != NULL && slots != NULL;
}

static int on_page(struct ctl *ctl, const struct msg *msg, void *context)
{
    const struct msg_nodes *page = &msg->nodes;
    struct node_pages *pages = context;
    const char *before = pages->node_count > 0 ? pages->nodes[pages->node_count - 1].name : "";
    bool is_kept = grow(pages, page);

    for (uint32_t i = 0; is_kept && i < page->nodes.count; i++)
        is_kept = keep_node(pages, &page->nodes.items[i]);
    for (uint32_t i = 0; is_kept && i < page->slots.count; i++)
        is_kept = keep_slot(pages, &page->slots.items[i]);
    pages->more =
        is_kept && page->nodes.count > 0 &&
        page_goes_on_by_name(page->more, before, pages->nodes[pages->node_count - 1].name);
    return is_kept ? CTL_OK : ctl_fail(ctl, CTL_FAILED, "out of memory", "");
}

/* Stops at NODES_MAX: the server lists more only if names change while the pages are read. */
int node_pages_read(struct ctl *ctl, bool with_lost, struct node_pages *pages)
{
    int rc;

    do {
        struct msg msg = {.type = MSG_TYPE_NODE_LIST,
                          .node_list = {.all = with_lost, .after = "", .limit = NODES_LISTED_MAX}};
        struct request request = {.msg = &msg,
                                  .patience_us = PATIENCE_US,
                                  .answer = MSG_TYPE_NODES,
                                  .on_answer = on_page,
                                  .context = pages};

        if (pages->node_count > 0)
            msg.node_list.after = pages->nodes[pages->node_count - 1].name;
        rc = request_run(ctl, &request);
    } while (rc == CTL_OK && pages->more && pages->node_count + NODES_LISTED_MAX <= NODES_MAX);
    return rc;
}

void node_pages_free(struct node_pages *pages)
{
    free(pages->nodes);
    free(pages->slots);
    arena_reset(&pages->arena);
}
