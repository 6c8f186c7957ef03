#include "ddpctl/options.h"

#include "common/limits.h"

#define ALL UINT32_MAX
#define JOB (VERB_RUN | VERB_SUBMIT)
#define AT(field) offsetof(struct options, field)

/* Defaults that help tells stand in the code that uses them: options_init, spec_init. */
static const struct flag flags[] = {
    {"server", NULL, 's', FLAG_TEXT, AT(server), 0, 0, ALL, "ADDRESS",
     "the server: unix:PATH or HOST:PORT (default: unix:/run/ddp/rendezvous.sock)"},
    {"json", NULL, 0, FLAG_SWITCH, AT(json), 0, 0, ALL, NULL, "print JSON; see ddpctl help json"},
    {"quiet", NULL, 'q', FLAG_SWITCH, AT(quiet), 0, 0, ALL, NULL,
     "no messages; of lists, the names alone"},
    {"color", NULL, 0, FLAG_TEXT, AT(color), 0, 0, ALL, "auto|always|never",
     "colour (default: at a terminal)"},
    {"patience", NULL, 0, FLAG_DURATION, AT(patience_us), 0, 0, ALL, "TIME",
     "how long run, wait and logs -f try to reach a lost server again (default: 60s)"},
    {"help", NULL, 'h', FLAG_SWITCH, AT(help), 0, 0, ALL, NULL, "help on this verb"},
    {"version", NULL, 0, FLAG_SWITCH, AT(version), 0, 0, VERB_HELP, NULL, "print the version"},

    {"nodes", "nnodes", 'N', FLAG_TEXT, AT(nodes), 0, 0, JOB, "N", "nodes (default: 1)"},
    {"nproc-per-node", NULL, 'n', FLAG_TEXT, AT(nproc_per_node), 0, 0, JOB, "M",
     "ranks on each node (default: 1); with --standalone also gpu, cpu, auto"},
    {"name", NULL, 0, FLAG_TEXT, AT(name), 0, 0, JOB, "NAME",
     "the job's name (default: the command's)"},
    {"env", NULL, 'e', FLAG_LIST, AT(env), 0, 0, JOB, "NAME=VALUE",
     "set a variable; may be repeated"},
    {"env-clear", NULL, 0, FLAG_SWITCH, AT(env_clear), 0, 0, JOB, NULL,
     "send no other variables than those of --env"},
    {"cwd", NULL, 0, FLAG_TEXT, AT(cwd), 0, 0, JOB, "DIR", "where the ranks run (default: here)"},
    {"max-restarts", NULL, 0, FLAG_NUMBER, AT(max_restarts), 0, 1000, JOB, "N",
     "restarts after failures (default: 3)"},
    {"grace", NULL, 0, FLAG_DURATION, AT(grace_us), 0, 0, JOB | VERB_CANCEL, "TIME",
     "from the signal to the kill (default: 10s)"},
    {"time", NULL, 0, FLAG_DURATION, AT(time_us), 0, 0, JOB, "TIME",
     "how long it may run (default: no limit)"},
    {"module", NULL, 'm', FLAG_SWITCH, AT(module), 0, 0, JOB, NULL,
     "the command is a Python module"},
    {"no-python", NULL, 0, FLAG_SWITCH, AT(no_python), 0, 0, JOB, NULL,
     "run a .py file as it is, without python3"},
    {"wait", NULL, 0, FLAG_SWITCH, AT(wait), 0, 0, VERB_SUBMIT | VERB_CANCEL, NULL,
     "until the job has ended"},
    {"follow", NULL, 'f', FLAG_SWITCH, AT(follow), 0, 0, VERB_SUBMIT | VERB_LOGS | VERB_EVENTS,
     NULL, "go on with what is new"},
    {"dry-run", NULL, 0, FLAG_SWITCH, AT(dry_run), 0, 0, JOB, NULL,
     "print the request, send nothing"},
    {"standalone", NULL, 0, FLAG_SWITCH, AT(standalone), 0, 0, VERB_RUN, NULL,
     "no server needed: private daemons on this machine, gone afterwards"},
    {"state-dir", NULL, 0, FLAG_TEXT, AT(state_dir), 0, 0, VERB_RUN, "DIR",
     "with --standalone: keep sockets, state and logs there"},
    {"bindir", NULL, 0, FLAG_TEXT, AT(bindir), 0, 0, VERB_RUN, "DIR",
     "with --standalone: where the daemons are"},

    {"all", NULL, 'a', FLAG_SWITCH, AT(all), 0, 0, VERB_PS | VERB_NODES, NULL,
     "ended jobs, lost nodes too"},
    {"watch", NULL, 'w', FLAG_SWITCH, AT(watch), 0, 0, VERB_PS | VERB_STATUS, NULL,
     "show it again when it changes"},
    {"rank", NULL, 'r', FLAG_TEXT, AT(rank), 0, 0, VERB_RUN | VERB_SUBMIT | VERB_LOGS,
     "0,4-7|all|failed", "whose logs (default: all)"},
    {"generation", NULL, 'g', FLAG_NUMBER, AT(generation), 1, 1000000, VERB_LOGS, "N",
     "of that generation (default: the current one, with -f also those after it)"},
    {"previous", NULL, 'p', FLAG_SWITCH, AT(previous), 0, 0, VERB_LOGS, NULL,
     "of the generation before"},
    {"tail", NULL, 't', FLAG_NUMBER, AT(tail), 1, 1000000, VERB_LOGS, "LINES",
     "begin so many lines before the end"},
    {"raw", NULL, 0, FLAG_SWITCH, AT(raw), 0, 0, VERB_RUN | VERB_SUBMIT | VERB_LOGS, NULL,
     "the logs' exact bytes: no prefix, nothing escaped"},
    {"job", NULL, 0, FLAG_TEXT, AT(job), 0, 0, VERB_EVENTS, "JOB", "of that job alone"},
    {"for", NULL, 0, FLAG_TEXT, AT(until), 0, 0, VERB_WAIT, "running|finished|step=N",
     "until that (default: finished)"},
    {"timeout", NULL, 0, FLAG_DURATION, AT(timeout_us), 0, 0, VERB_WAIT, "TIME",
     "give up after this, exit 124"},
    {"signal", NULL, 0, FLAG_TEXT, AT(signal), 0, 0, VERB_CANCEL, "SIGNAL",
     "sent first (default: TERM)"},
    {"now", NULL, 0, FLAG_SWITCH, AT(now), 0, 0, VERB_CANCEL, NULL, "kill at once, no grace"},

    /* torchrun's, for command lines that are carried over: the server does what they are for */
    {"rdzv-backend", NULL, 0, FLAG_IGNORED, 0, 0, 0, JOB, "X", NULL},
    {"rdzv-endpoint", NULL, 0, FLAG_IGNORED, 0, 0, 0, JOB, "X", NULL},
    {"rdzv-id", NULL, 0, FLAG_IGNORED, 0, 0, 0, JOB, "X", NULL},
    {"rdzv-conf", NULL, 0, FLAG_IGNORED, 0, 0, 0, JOB, "X", NULL},
    {"node-rank", NULL, 0, FLAG_IGNORED, 0, 0, 0, JOB, "X", NULL},
    {"master-addr", NULL, 0, FLAG_IGNORED, 0, 0, 0, JOB, "X", NULL},
    {"master-port", NULL, 0, FLAG_IGNORED, 0, 0, 0, JOB, "X", NULL},
    {"local-addr", NULL, 0, FLAG_IGNORED, 0, 0, 0, JOB, "X", NULL},
    {"monitor-interval", NULL, 0, FLAG_IGNORED, 0, 0, 0, JOB, "X", NULL},
    {"start-method", NULL, 0, FLAG_IGNORED, 0, 0, 0, JOB, "X", NULL},
    {"log-dir", NULL, 0, FLAG_IGNORED, 0, 0, 0, JOB, "X", NULL},
    {"redirects", NULL, 0, FLAG_IGNORED, 0, 0, 0, JOB, "X", NULL},
    {"tee", NULL, 0, FLAG_IGNORED, 0, 0, 0, JOB, "X", NULL},
};

static void note_ignored(void *target, const char *name)
{
    struct options *options = target;

    if (options->ignored_count < sizeof options->ignored / sizeof options->ignored[0])
        options->ignored[options->ignored_count++] = name;
}

const struct flag_table options_table = {
    .flags = flags,
    .count = sizeof flags / sizeof flags[0],
    .on_ignored = note_ignored,
};

void options_init(struct options *options)
{
    *options = (struct options){
        .server = "unix:/run/ddp/rendezvous.sock",
        .patience_us = 60u * 1000000u,
        .max_restarts = FLAG_NO_NUMBER,
        .grace_us = FLAG_NO_DURATION,
        .time_us = FLAG_NO_DURATION,
        .timeout_us = FLAG_NO_DURATION,
    };
}
