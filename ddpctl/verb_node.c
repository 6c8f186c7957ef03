/* nodes; node show, drain, resume. The other words of node are in verb_key.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddpctl/node_pages.h"
#include "ddpctl/output.h"
#include "ddpctl/request.h"
#include "ddpctl/verbs.h"

#define PATIENCE_US 5000000u

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
    struct node_pages pages = {0};
    struct msg_nodes nodes = {0};
    int rc = too_many(ctl, 0);

    if (rc == CTL_OK)
        rc = node_pages_read(ctl, ctl->options.all, &pages);
    nodes.nodes.items = pages.nodes;
    nodes.nodes.count = pages.node_count;
    nodes.slots.items = pages.slots;
    nodes.slots.count = pages.slot_count;
    if (rc == CTL_OK)
        rc = show_nodes(ctl, &nodes);
    node_pages_free(&pages);
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
