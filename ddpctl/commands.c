#include "ddpctl/commands.h"

#include <stdio.h>
#include <string.h>

#include "ddpctl/verbs.h"

static int verb_version(struct ctl *ctl)
{
    struct buf out = {0};

    if (ctl->screen.json)
        buf_printf(&out, "{\"schema\":\"ddp.v1\",\"version\":\"%s\",\"protocol\":%d}\n",
                   DDP_VERSION, PROTOCOL_VERSION);
    else
        buf_printf(&out, "ddpctl %s\n", DDP_VERSION);
    return screen_out(&ctl->screen, &out) == STATUS_OK ? CTL_OK : CTL_FAILED;
}

static int verb_help(struct ctl *ctl)
{
    struct buf out = {0};
    const char *topic = ctl->word_count > 0 ? ctl->words[0] : NULL;

    if (!help_write(topic, &out)) {
        const char *guess = command_guess(topic);
        char message[160];

        buf_free(&out);
        (void)snprintf(message, sizeof message, "there is no help on '%.60s'%s%s%s", topic,
                       guess ? "; did you mean " : "", guess ? guess : "", guess ? "?" : "");
        return ctl_fail(ctl, CTL_USAGE, message, "ddpctl help lists the verbs");
    }
    return screen_out(&ctl->screen, &out) == STATUS_OK ? CTL_OK : CTL_FAILED;
}

static int verb_later(struct ctl *ctl)
{
    char message[160];

    (void)snprintf(message, sizeof message, "%s comes in a later version", ctl->verb_name);
    return ctl_fail(ctl, CTL_USAGE, message, "ddpctl help lists what is there");
}

#define LATER(word, what)                                                                          \
    {                                                                                              \
        .name = word, .verb = VERB_LATER, .stops_at_word = true, .summary = what,                  \
        .run = verb_later                                                                          \
    }

const struct command commands[] = {
    {.name = "run",
     .verb = VERB_RUN,
     .stops_at_word = true,
     .is_attached = true,
     .usage = "run [options] [--] CMD...",
     .summary = "submit a job, show its logs, exit as it does",
     .examples = "  ddpctl run --standalone --nproc-per-node 4 -- python3 train.py --epochs 3\n"
                 "  ddpctl run --nodes 2 --nproc-per-node 8 --name r50 -- ddp-worker --arch "
                 "convnet data/\n",
     .run = verb_run},
    {.name = "submit",
     .verb = VERB_SUBMIT,
     .stops_at_word = true,
     .usage = "submit [options] [JOB.json] [--] [CMD...]",
     .summary = "queue a job, print its number",
     .examples =
         "  ddpctl submit --nodes 2 --nproc-per-node 8 --name r50 -- python3 train.py\n"
         "  ddpctl submit --dry-run -- python3 train.py > job.json && ddpctl submit job.json\n",
     .run = verb_submit},
    {.name = "ps",
     .verb = VERB_PS,
     .usage = "ps [-a] [-w]",
     .summary = "jobs that wait and run, and why they wait",
     .run = verb_ps},
    {.name = "status",
     .verb = VERB_STATUS,
     .usage = "status [-w] JOB",
     .summary = "all about one job: ranks, progress, last failure",
     .run = verb_status},
    {.name = "logs",
     .verb = VERB_LOGS,
     .usage = "logs [-f] [options] JOB",
     .summary = "what its ranks print, through restarts",
     .examples = "  ddpctl logs -f 41 --rank 0,4-7\n  ddpctl logs @last --rank failed --tail 20\n",
     .run = verb_logs},
    {.name = "wait",
     .verb = VERB_WAIT,
     .is_attached = true,
     .usage = "wait [options] JOB...",
     .summary = "until a job has ended, or is so far",
     .examples = "  ddpctl wait --for step=1000 --timeout 1h r50\n",
     .run = verb_wait},
    {.name = "cancel",
     .verb = VERB_CANCEL,
     .usage = "cancel [options] JOB...",
     .summary = "end a job: a signal, a grace, then the kill",
     .run = verb_cancel},
    {.name = "nodes",
     .verb = VERB_NODES,
     .usage = "nodes [-a]",
     .summary = "nodes and their slots",
     .run = verb_nodes},
    {.name = "node",
     .verb = VERB_NODE,
     .usage = "node show|drain|resume [options] NAME",
     .summary = "one node's slots; take it, or some of them, out of use and back",
     .examples = "  ddpctl node drain gpu01 --slot 3 --reason 'fan is loud'\n"
                 "  ddpctl node resume gpu01        what operators drained, and faults that were "
                 "mended\n",
     .run = verb_node},
    {.name = "events",
     .verb = VERB_EVENTS,
     .usage = "events [-f] [JOB]",
     .summary = "what happened, in words",
     .run = verb_events},
    {.name = "version",
     .verb = VERB_VERSION,
     .usage = "version",
     .summary = "print the version",
     .run = verb_version},
    {.name = "help",
     .verb = VERB_HELP,
     .usage = "help [VERB|exit-codes|environment|json]",
     .summary = "this",
     .run = verb_help},
    LATER("top", "live view of jobs"),
    LATER("why", "root cause of a failure, report on a wait"),
    LATER("metrics", "a job's numbers over time"),
    LATER("doctor", "checks of the cluster"),
    LATER("completion", "completion for shells"),
};
const size_t command_count = sizeof commands / sizeof commands[0];

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < command_count; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

const char *command_guess(const char *name)
{
    const char *words[sizeof commands / sizeof commands[0]];

    for (size_t i = 0; i < command_count; i++)
        words[i] = commands[i].name;
    return options_nearest(name, words, command_count);
}
