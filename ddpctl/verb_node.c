/* nodes; node show, drain, resume. The other words of node are in verb_key.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "ddpctl/output.h"
#include "ddpctl/request.h"
#include "ddpctl/verbs.h"

#define PATIENCE_US 5000000u

/* What the pages of the list gave so far. */
struct node_list {
    struct arena arena; /* of the texts */
    struct part_node *nodes;
    struct part_slot *slots;
    uint32_t node_count, slot_count;
    bool more;
};

static int ask(struct ctl *ctl, struct msg *msg,
               int (*on_answer)(struct ctl *, const struct msg *, void *), void *context)
{
    struct request request = {.msg = msg,
                              .patience_us = PATIENCE_US,
                              .answer = MSG_TYPE_NODES,
                              .on_answer = on_answer,
                              .context = context};

    return request_run(ctl, &request);
}

static int show(struct ctl *ctl, struct buf *out)
{
    return screen_out(&ctl->screen, out) == STATUS_OK ? CTL_OK : CTL_FAILED;
}

static int too_many(struct ctl *ctl, int most)
{
    char message[256];

    if (ctl->word_count <= most)
        return CTL_OK;
    (void)snprintf(message, sizeof message, "%s: nothing is known about '%.80s'", ctl->verb_name,
                   ctl->words[most]);
    return ctl_fail(ctl, CTL_USAGE, message, "see ddpctl help");
}

/* False: no memory, and `*text` is as it was. */
static bool keep(struct node_list *list, const char **text)
{
    const char *copy = arena_text(&list->arena, *text, strlen(*text));

    if (copy != NULL)
        *text = copy;
    return copy != NULL;
}

static bool keep_node(struct node_list *list, const struct part_node *node)
{
    struct part_node *kept = &list->nodes[list->node_count++];

    *kept = *node;
    return keep(list, &kept->name) && keep(list, &kept->address) &&
           keep(list, &kept->drain_reason) && keep(list, &kept->drained_by) &&
           keep(list, &kept->version);
}

static bool keep_slot(struct node_list *list, const struct part_slot *slot)
{
    struct part_slot *kept = &list->slots[list->slot_count++];

    *kept = *slot;
    return keep(list, &kept->node) && keep(list, &kept->reason) && keep(list, &kept->drained_by);
}

/* Room for the nodes and slots of one more page. */
static bool grow(struct node_list *list, const struct msg_nodes *page)
{
    struct part_node *nodes =
        realloc(list->nodes, (list->node_count + page->nodes.count + 1u) * sizeof *nodes);
    struct part_slot *slots =
        realloc(list->slots, (list->slot_count + page->slots.count + 1u) * sizeof *slots);

    list->nodes = nodes != NULL ? nodes : list->nodes;
    list->slots = slots != NULL ? slots : list->slots;
    return nodes != NULL && slots != NULL;
}

static int on_page(struct ctl *ctl, const struct msg *msg, void *context)
{
    const struct msg_nodes *page = &msg->nodes;
    struct node_list *list = context;
    bool is_kept = grow(list, page);

    for (uint32_t i = 0; is_kept && i < page->nodes.count; i++)
        is_kept = keep_node(list, &page->nodes.items[i]);
    for (uint32_t i = 0; is_kept && i < page->slots.count; i++)
        is_kept = keep_slot(list, &page->slots.items[i]);
    list->more = page->more && page->nodes.count > 0;
    return is_kept ? CTL_OK : ctl_fail(ctl, CTL_FAILED, "out of memory", "");
}

/* More than NODES_MAX are listed only if names change while the pages are read. */
static int ask_pages(struct ctl *ctl, struct node_list *list)
{
    int rc;

    do {
        struct msg msg = {
            .type = MSG_TYPE_NODE_LIST,
            .node_list = {.all = ctl->options.all, .after = "", .limit = NODES_LISTED_MAX}};

        if (list->node_count > 0)
            msg.node_list.after = list->nodes[list->node_count - 1].name;
        rc = ask(ctl, &msg, on_page, list);
    } while (rc == CTL_OK && list->more && list->node_count + NODES_LISTED_MAX <= NODES_MAX);
    return rc;
}

static int show_nodes(struct ctl *ctl, const struct msg_nodes *nodes)
{
    struct output_style style = screen_style(&ctl->screen);
    struct buf out = {0};

    if (ctl->screen.json) {
        output_nodes_json(nodes, &out);
    } else if (ctl->screen.quiet) {
        for (uint32_t i = 0; i < nodes->nodes.count; i++)
            buf_printf(&out, "%s\n", nodes->nodes.items[i].name);
    } else if (nodes->nodes.count == 0) {
        if (ctl->server.tls != NULL)
            screen_message(&ctl->screen, "no nodes; give one a key: ddpctl node add NAME");
        else
            screen_message(&ctl->screen, "no nodes; start one with: launcherd --server %s",
                           ctl->server.address);
    } else {
        output_nodes(nodes, &style, &out);
    }
    return show(ctl, &out);
}

int verb_nodes(struct ctl *ctl)
{
    struct node_list list = {0};
    struct msg_nodes nodes = {0};
    int rc = too_many(ctl, 0);

    if (rc == CTL_OK)
        rc = ask_pages(ctl, &list);
    nodes.nodes.items = list.nodes;
    nodes.nodes.count = list.node_count;
    nodes.slots.items = list.slots;
    nodes.slots.count = list.slot_count;
    if (rc == CTL_OK)
        rc = show_nodes(ctl, &nodes);
    free(list.nodes);
    free(list.slots);
    arena_reset(&list.arena);
    return rc;
}

static int on_node(struct ctl *ctl, const struct msg *msg, void *context)
{
    struct output_style style = screen_style(&ctl->screen);
    bool is_show = strcmp(ctl->words[0], "show") == 0;
    struct buf out = {0};

    (void)context;
    if (msg->nodes.nodes.count != 1)
        return ctl_fail_unexpected(ctl, msg);
    if (ctl->screen.json)
        output_node_json(&msg->nodes, &out);
    else if (is_show)
        output_node(&msg->nodes, &style, &out);
    else
        screen_message(&ctl->screen, "%s %s%s%s\n  look  ddpctl node show %s",
                       strcmp(ctl->words[0], "drain") == 0 ? "drained:" : "resumed:", ctl->words[1],
                       ctl->options.slot ? ", slot " : "",
                       ctl->options.slot ? ctl->options.slot : "", ctl->words[1]);
    return show(ctl, &out);
}

/* "0,4-7" as bits. False: not such a list. */
static bool parse_slots(const char *text, uint64_t *mask)
{
    const char *at = text;

    *mask = 0;
    do {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;

        if (end == at || *at < '0' || *at > '9')
            return false;
        if (*end == '-') {
            at = end + 1;
            last = strtoul(at, &end, 10);
            if (end == at || *at < '0' || *at > '9')
                return false;
        }
        if (last >= SLOTS_PER_NODE_MAX || first > last)
            return false;
        for (unsigned long slot = first; slot <= last; slot++)
            *mask |= 1ull << slot;
        at = end + 1;
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
    } while (true);
}

static int make_request(struct ctl *ctl, struct msg *msg)
{
    const char *what = ctl->words[0], *name = ctl->words[1];
    uint64_t mask = 0;
    char message[160];

    if (ctl->options.slot && !parse_slots(ctl->options.slot, &mask)) {
        (void)snprintf(message, sizeof message,
                       "--slot: '%.60s' should be slots from 0 to %u, as in 0,4-7",
                       ctl->options.slot, SLOTS_PER_NODE_MAX - 1);
        return ctl_fail(ctl, CTL_USAGE, message, "");
    }
    if (strcmp(what, "show") == 0) {
        msg->type = MSG_TYPE_NODE_LIST;
        msg->node_list = (struct msg_node_list){.all = true, .node = name, .limit = 1};
    } else if (strcmp(what, "drain") == 0) {
        const char *reason = ctl->options.reason ? ctl->options.reason : "no reason was given";

        msg->type = MSG_TYPE_NODE_DRAIN;
        msg->node_drain = (struct msg_node_drain){name, mask, reason};
    } else if (strcmp(what, "resume") == 0) {
        msg->type = MSG_TYPE_NODE_RESUME;
        msg->node_resume = (struct msg_node_resume){name, mask};
    } else {
        (void)snprintf(message, sizeof message,
                       "node: '%.60s' should be show, drain, resume, add, list, remove or rotate",
                       what);
        return ctl_fail(ctl, CTL_USAGE, message, "see ddpctl help node");
    }
    return CTL_OK;
}

int verb_node(struct ctl *ctl)
{
    struct msg msg = {0};
    int rc;

    if (ctl->word_count > 0 && verb_key_is(ctl->words[0]))
        return verb_key_node(ctl);
    if (ctl->word_count < 2)
        return ctl_fail(
            ctl, CTL_USAGE, "node: what, and which node?",
            "ddpctl node show|drain|resume|add|remove|rotate NAME; ddpctl nodes lists those that "
            "are up, ddpctl node list those that have a key");
    rc = too_many(ctl, 2);
    if (rc == CTL_OK)
        rc = make_request(ctl, &msg);
    return rc != CTL_OK ? rc : ask(ctl, &msg, on_node, NULL);
}
