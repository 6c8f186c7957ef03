#include "ddpctl/nproc.h"

#include <stdio.h>
#include <string.h>

#include "ddpctl/node_pages.h"
#include "ddpctl/standalone.h"

/* The numbers of slots of all nodes with GPUs, or of all nodes without GPUs. */
struct counts {
    uint32_t least, most; /* fewest and most slots of a node; most 0: there is no such node */
    char least_node[NODE_NAME_BYTES_MAX], most_node[NODE_NAME_BYTES_MAX];
};
bool nproc_is_word(const char *text)
{
    return strcmp(text, "gpu") == 0 || strcmp(text, "cpu") == 0 || strcmp(text, "auto") == 0;
}

static void count(struct counts *counts, const char *node, uint32_t number)
{
    if (counts->most == 0 || number < counts->least) {
        counts->least = number;
        (void)snprintf(counts->least_node, sizeof counts->least_node, "%s", node);
    }
    if (counts->most == 0 || number > counts->most) {
        counts->most = number;
        (void)snprintf(counts->most_node, sizeof counts->most_node, "%s", node);
    }
}

int nproc_of_nodes(struct ctl *ctl)
{
    static char number[12]; /* ctl->options points to it until the program ends */
    const char *word = ctl->options.nproc_per_node;
    struct node_pages pages = {.more = false};
    struct counts gpus = {0}, cpus = {0};
    char message[256];
    int rc = node_pages_read(ctl, false, &pages);

    for (uint32_t i = 0; i < pages.node_count; i++) {
        const struct part_node *node = &pages.nodes[i];
        if (node->gpus > 0)
            count(&gpus, node->name, node->gpus);
        else
            count(&cpus, node->name, node->slots);
    }
    node_pages_free(&pages);
    if (rc != CTL_OK)
        return rc;
    bool wants_gpus = strcmp(word, "gpu") == 0 || (strcmp(word, "auto") == 0 && gpus.most > 0);
    const struct counts *counts = wants_gpus ? &gpus : &cpus;
    if (counts->most == 0) {
        (void)snprintf(message, sizeof message, "--nproc-per-node %s: the server has no node %s",
                       word, wants_gpus ? "with a GPU" : "without GPUs");
        return ctl_fail(ctl, CTL_USAGE, message, "ddpctl nodes lists them; give a number");
    }
    if (counts->least != counts->most) {
        (void)snprintf(message, sizeof message,
                       "--nproc-per-node %s: nodes differ, %s has %u and %s has %u; give a number",
                       word, counts->least_node, counts->least, counts->most_node, counts->most);
        return ctl_fail(ctl, CTL_USAGE, message, "ddpctl nodes lists them");
    }
    (void)snprintf(number, sizeof number, "%u", counts->most);
    ctl->options.nproc_per_node = number;
    return CTL_OK;
}

enum status nproc_take(struct spec *spec, const struct ctl *ctl, struct err *err)
{
    const char *text = ctl->options.nproc_per_node;
    uint32_t gpus, cores;
    uint64_t number = 0;
    enum status status;

    if (!text)
        return STATUS_OK;
    spec->nproc_given = true;
    if (!nproc_is_word(text)) {
        status =
            options_parse_number("--nproc-per-node", text, 1, SLOTS_PER_NODE_MAX, &number, err);
        if (status == STATUS_OK)
            spec->nproc_per_node = (uint32_t)number;
        return status;
    }
    if (ctl->options.slurm)
        return STATUS_OK; /* slurm_take handles it */
    status = standalone_machine(ctl, &cores, &gpus, err);
    if (status != STATUS_OK)
        return status;
    if (gpus < spec->nodes && strcmp(text, "gpu") == 0)
        return err_set(err, STATUS_NOT_FOUND, 0,
                       gpus == 0 ? "--nproc-per-node gpu: there is no NVIDIA GPU here that can be "
                                   "used; use cpu or a number"
                                 : "--nproc-per-node gpu: %u nodes cannot have a GPU each, there "
                                   "are %u here; use fewer --nodes",
                       spec->nodes, gpus);
    spec->nproc_per_node =
        gpus >= spec->nodes && strcmp(text, "cpu") != 0 ? gpus / spec->nodes : cores;
    if (spec->nproc_per_node > SLOTS_PER_NODE_MAX)
        spec->nproc_per_node = SLOTS_PER_NODE_MAX;
    return STATUS_OK;
}
