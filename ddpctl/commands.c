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
                   msg_release(), msg_protocol());
    else
        buf_printf(&out, "ddpctl %s\n", msg_release());
    return screen_out(&ctl->screen, &out) == STATUS_OK ? CTL_OK : CTL_FAILED;
}

static int verb_help(struct ctl *ctl)
{
    struct buf out = {0};
    const char *topic = ctl->word_count > 0 ? ctl->words[0] : NULL;

    if (topic && command_find(topic))
        topic = command_find(topic)->name; /* `topic` may be a synonym */
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
    {.name = "server",
     .verb = VERB_SERVER,
     .usage = "server [options]",
     .summary = "the server; of several, which one leads and which stand by",
     .run = verb_server},
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
     .examples = "  ddpctl report r50                  writes report-r50-41.html\n"
                 "  ddpctl report -o - 41 > r50.html\n",
     .run = verb_report},
    {.name = "why",
     .verb = VERB_WHY,
     .usage = "why [options] JOB",
     .summary = "why a job failed, waits or stands still",
     .examples =
         "  ddpctl why @last\n  ddpctl why -g 2 r50                how its generation 2 failed\n"
         "  ddpctl why --stacks 41             where each rank of a running job stands\n",
     .run = verb_why},
    {.name = "top",
     .verb = VERB_TOP,
     .usage = "top [--once] [--interval TIME] [JOB]",
     .summary = "jobs, nodes and GPUs, live; of one job its ranks",
     .examples = "  ddpctl top                         ? shows the keys\n"
                 "  ddpctl top r50\n"
                 "  ddpctl top --once --json | jq .nodes\n",
     .run = verb_top},
    {.name = "http",
     .verb = VERB_HTTP,
     .usage = "http [--listen HOST:PORT] [options]",
     .summary = "serve a page of jobs, nodes and GPUs, and metrics for Prometheus",
     .examples = "  ddpctl http                        http://127.0.0.1:7480/ , /metrics\n"
                 "  ddpctl http --listen 0.0.0.0:7480 --key-file /etc/ddp/http.key\n",
     .run = verb_http},
    {.name = "doctor",
     .verb = VERB_DOCTOR,
     .usage = "doctor [--node NAME]... [--net] [JOB]",
     .summary = "what is wrong with the nodes and the network between them",
     .examples = "  ddpctl doctor                      exit 1 if anything fails\n"
                 "  ddpctl doctor 41                   the nodes of a job, with its account, "
                 "folder and Python\n"
                 "  ddpctl doctor --node gpu01 --node gpu02 --net\n",
     .run = verb_doctor},
    {.name = "backup",
     .verb = VERB_BACKUP,
     .usage = "backup [--move] [options] FILE",
     .summary = "the server's state as a file: jobs, keys, drains, events",
     .examples = "  ddpctl backup /srv/backup/ddp-monday      a server may be running\n"
                 "  ddpctl backup --move old.ddp && ddpctl restore --store etcd://h1,h2,h3 "
                 "old.ddp\n",
     .run = verb_backup},
    {.name = "restore",
     .verb = VERB_RESTORE,
     .usage = "restore [options] FILE",
     .summary = "a state that was backed up, into an empty one of either kind",
     .examples = "  ddpctl restore --state-dir /srv/ddp /srv/backup/ddp-monday\n",
     .run = verb_restore},
    {.name = "upgrade",
     .verb = VERB_UPGRADE,
     .usage = "upgrade --plan",
     .summary = "how to bring the cluster to this version, without stopping jobs",
     .examples = "  ddpctl upgrade --plan              exit 1 if it would not be safe\n",
     .run = verb_upgrade},
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
};
const size_t command_count = sizeof commands / sizeof commands[0];

static const struct {
    const char *word, *verb;
} synonyms[] = {{"kill", "cancel"}, {"stop", "cancel"}, {"list", "ps"}, {"ls", "ps"}};

/* Verbs of Docker, Kubernetes, Slurm and torchrun, and what to write here instead. */
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
        words[count++] = commands[i].name;
    return options_nearest(name, words, count);
}
