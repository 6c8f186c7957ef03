#include "ddpctl/commands.h"

#include <stdio.h>
#include <string.h>

#include "common/msg_version.h"
#include "ddpctl/docs.h"
#include "ddpctl/help.h"
#include "ddpctl/verbs.h"

static int verb_version(struct ctl *ctl)
{
    struct buf out = {0};

    if (ctl->screen.json)
        buf_printf(&out, "{\"schema\":\"ddp.v1\",\"version\":\"%s\",\"protocol\":%u}\n",
                   DDP_VERSION, msg_protocol());
    else
        buf_printf(&out, "ddpctl %s\n", DDP_VERSION);
    return screen_out(&ctl->screen, &out) == STATUS_OK ? CTL_OK : CTL_FAILED;
}

static int verb_help(struct ctl *ctl)
{
    struct buf out = {0};
    const char *topic = ctl->word_count > 0 ? ctl->words[0] : NULL;

    if (topic && command_find(topic))
        topic = command_find(topic)->name; /* of a synonym */
    if (!help_write(commands, command_count, topic, &out)) {
        const char *guess = command_guess(topic);
        char message[160];

        buf_free(&out);
        (void)snprintf(message, sizeof message, "there is no help on '%.60s'%s%s%s", topic,
                       guess ? "; did you mean " : "", guess ? guess : "", guess ? "?" : "");
        return ctl_fail(ctl, CTL_USAGE, message, "ddpctl help lists the verbs");
    }
    return screen_out(&ctl->screen, &out) == STATUS_OK ? CTL_OK : CTL_FAILED;
}

static int verb_planned(struct ctl *ctl)
{
    char message[160];

    (void)snprintf(message, sizeof message, "%s comes in a later version", ctl->verb_name);
    return ctl_fail(ctl, CTL_USAGE, message, "ddpctl help lists what is there");
}

/* clang-format off */
#define PLANNED(word, what)                                                                        \
    {.name = word, .verb = VERB_PLANNED, .stops_at_word = true, .summary = what,                   \
     .run = verb_planned}
/* clang-format on */

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
     .usage = "node show|drain|resume|add|remove|rotate [options] NAME, node list",
     .summary = "one node's slots; take it out of use and back; keys of nodes",
     .examples = "  ddpctl node drain gpu01 --slot 3 --reason 'fan is loud'\n"
                 "  ddpctl node resume gpu01        what operators drained, and faults that were "
                 "mended\n"
                 "  ddpctl node add gpu02           prints the command that lets it join\n"
                 "  ddpctl node rotate gpu02 --overlap 1d\n",
     .run = verb_node},
    {.name = "user",
     .verb = VERB_USER,
     .usage = "user add|remove|rotate [options] NAME, user list",
     .summary = "keys of users, to reach the server over a network",
     .examples = "  ddpctl user add alice           her account on the nodes has this name\n"
                 "  ddpctl user rotate alice --overlap 1d\n",
     .run = verb_user},
    {.name = "login",
     .verb = VERB_LOGIN,
     .usage = "login KEY|-|@FILE",
     .summary = "keep a key of `user add`: its server is then the default",
     .run = verb_login},
    {.name = "logout",
     .verb = VERB_LOGOUT,
     .usage = "logout",
     .summary = "forget this key",
     .run = verb_logout},
    {.name = "events",
     .verb = VERB_EVENTS,
     .usage = "events [-f] [JOB]",
     .summary = "what happened, in words",
     .run = verb_events},
    {.name = "metrics",
     .verb = VERB_METRICS,
     .usage = "metrics [-f] [options] JOB",
     .summary = "a job's numbers over time: what rank 0 wrote to DDP_METRICS",
     .examples = "  ddpctl metrics 41\n"
                 "  ddpctl metrics -f --field loss,samples_per_s @last\n"
                 "  ddpctl metrics --format csv r50 > r50.csv\n",
     .run = verb_metrics},
    {.name = "report",
     .verb = VERB_REPORT,
     .usage = "report [-o FILE] JOB",
     .summary = "a page for a browser: curves, restarts, ranks, events",
     .examples = "  ddpctl report r50                  writes report-r50.html\n"
                 "  ddpctl report -o - 41 > r50.html\n",
     .run = verb_report},
    {.name = "completion",
     .verb = VERB_COMPLETION,
     .usage = "completion bash|zsh|fish",
     .summary = "print completion for a shell; packages install it",
     .examples = "  source <(ddpctl completion bash)\n",
     .run = verb_completion},
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
    PLANNED("top", "live view of jobs"),
    PLANNED("why", "root cause of a failure, report on a wait"),
    PLANNED("doctor", "checks of the cluster"),
};
const size_t command_count = sizeof commands / sizeof commands[0];

static const struct {
    const char *word, *verb;
} synonyms[] = {{"kill", "cancel"}, {"stop", "cancel"}, {"list", "ps"}, {"ls", "ps"}};

/* Verbs of Docker, Kubernetes, Slurm and torchrun. */
static const struct {
    const char *word, *advice;
} advices[] = {
    {"rm", "a job is never removed by hand: ddpctl cancel JOB ends it, and what has ended leaves "
           "the lists by itself (rendezvous --keep-jobs)"},
    {"delete", "a job is never removed by hand: ddpctl cancel JOB ends it, and what has ended "
               "leaves the lists by itself (rendezvous --keep-jobs)"},
    {"queue", "the jobs that wait and run: ddpctl ps"},
    {"jobs", "the jobs that wait and run: ddpctl ps"},
    {"info", "all about one job: ddpctl status JOB"},
    {"show", "all about one job: ddpctl status JOB; about a node: ddpctl node show NODE"},
    {"start", "a new job: ddpctl run or ddpctl submit"},
    {"exec", "a new job: ddpctl run or ddpctl submit"},
    {"attach", "what a job prints: ddpctl logs -f JOB; its end: ddpctl wait JOB"},
};

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < sizeof synonyms / sizeof synonyms[0]; i++)
        if (strcmp(synonyms[i].word, name) == 0)
            name = synonyms[i].verb;
    for (size_t i = 0; i < command_count; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

const char *command_advice(const char *name)
{
    for (size_t i = 0; i < sizeof advices / sizeof advices[0]; i++)
        if (strcmp(advices[i].word, name) == 0)
            return advices[i].advice;
    return NULL;
}

const char *command_guess(const char *name)
{
    const char *words[sizeof commands / sizeof commands[0]];
    size_t count = 0;

    for (size_t i = 0; i < command_count; i++)
        if (commands[i].verb != VERB_PLANNED)
            words[count++] = commands[i].name;
    return options_nearest(name, words, count);
}
