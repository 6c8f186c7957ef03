#include "ddpctl/run_here.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/io/address.h"
#include "common/text.h"
#include "ddpctl/spec.h"

#define COMMAND_BYTES 200

/* A socket that nobody answers on is a server that has stopped: that is an error, which names it. */
static bool is_without_server(const struct ctl *ctl)
{
    const struct server *server = &ctl->server;
    struct stat info;

    return server->is_default && server->problem.status == STATUS_OK &&
           address_is_unix(server->address) && stat(address_path(server->address), &info) != 0 &&
           (errno == ENOENT || errno == ENOTDIR);
}

void run_here_command(const struct ctl *ctl, char *text, size_t byte_count)
{
    const struct options *options = &ctl->options;
    size_t used = (size_t)snprintf(
        text, byte_count, "ddpctl run%s%s%s%s%s", options->nodes ? " --nodes " : "",
        options->nodes ? options->nodes : "", options->nproc_per_node ? " --nproc-per-node " : "",
        options->nproc_per_node ? options->nproc_per_node : "", options->module ? " -m" : "");

    for (int i = 0; i < ctl->word_count && used < byte_count; i++)
        used += (size_t)snprintf(text + used, byte_count - used, " %s", ctl->words[i]);
    if (used >= byte_count && byte_count > 4)
        (void)snprintf(text + byte_count - 4, 4, "...");
}

static int refuse(struct ctl *ctl)
{
    char message[256], command[COMMAND_BYTES], hint[512];

    run_here_command(ctl, command, sizeof command);
    (void)snprintf(message, sizeof message,
                   "--nodes %.20s needs a server, which knows the nodes, and none is here (%.80s)",
                   ctl->options.nodes, address_path(ctl->server.address));
    (void)snprintf(hint, sizeof hint,
                   "docs/two-machines.md: a server, a launcherd on each node, then once, on any "
                   "machine: %s; --standalone runs all nodes on this one",
                   command);
    return ctl_fail(ctl, CTL_USAGE, message, hint);
}

int run_here_choose(struct ctl *ctl)
{
    struct options *options = &ctl->options;
    uint32_t nodes = 1, nodes_min = 1;
    struct err err;

    if (options->standalone || options->slurm || options->dry_run || !is_without_server(ctl) ||
        (ctl->word_count > 0 && text_ends_with(ctl->words[0], ".json"))) /* it has its own nodes */
        return CTL_OK;
    if (options->nodes != NULL &&
        spec_nodes_parse(options->nodes, &nodes, &nodes_min, &err) != STATUS_OK)
        return CTL_OK; /* refused where it is taken */
    if (nodes_min > 1)
        return refuse(ctl);
    if (nodes > 1)
        options->nodes = "1"; /* of 1:4, those that there are */
    screen_message(&ctl->screen,
                   "-- no server is here (%s): the job runs on this machine, as with "
                   "--standalone --",
                   address_path(ctl->server.address));
    options->standalone = true;
    server_free(&ctl->server);
    ctl->server = (struct server){.address = ""};
    return CTL_OK;
}
