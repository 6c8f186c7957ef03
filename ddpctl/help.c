#include "ddpctl/help.h"

#include <stdio.h>
#include <string.h>

#include "ddpctl/options.h"

static const char head[] =
    "ddpctl submits training jobs, watches them and reads their logs.\n"
    "\n"
    "  ddpctl run --standalone --nproc-per-node 4 -- python3 train.py    one machine, no set-up\n"
    "  ddpctl submit --nodes 2 --nproc-per-node 8 -- python3 train.py    queue it on a cluster\n"
    "  ddpctl ps                      what runs, what waits and why\n"
    "  ddpctl logs -f @last           its logs, through restarts\n"
    "\n"
    "A job is named by its number, its name (the newest of it) or @last.\n"
    "\n";

static const char exit_codes[] =
    "run, submit --wait, wait exit as the job does:\n"
    "  N        the code of the first rank that failed; 0 when all ended well\n"
    "  128+N    that rank was killed by signal N; or signal N ended ddpctl, which cancelled the "
    "job\n"
    "  124      a time-out (wait --timeout, --time)\n"
    "  125      ddpctl's own failure: options, server, output, a cancelled job; nodes that could "
    "not "
    "start it\n"
    "  126      the command cannot be run on the node\n"
    "  127      the command is not found on the node\n"
    "The other verbs:\n"
    "  0 done   1 failed   2 usage   3 no such job or node   4 not allowed   5 server unreachable\n"
    "With --json, \"exit\":{\"code\":N,\"source\":\"job\"|\"ddpctl\"} shows whose code it is.\n";

static const char environment[] =
    "Every option has a variable: --nproc-per-node is DDP_NPROC_PER_NODE; a switch is 1 or 0. But\n"
    "--generation has none: DDP_GENERATION tells a rank its own.\n"
    "  DDP_SERVER       the server: unix:PATH or HOST:PORT; without it that of ddpctl login, else\n"
    "                   your own ($XDG_RUNTIME_DIR/ddp/rendezvous.sock, "
    "~/.local/state/ddp/rendezvous.sock),\n"
    "                   else the machine's (/run/ddp/rendezvous.sock)\n"
    "  XDG_CONFIG_HOME  ddpctl login keeps its key in ddp/key there (default: ~/.config)\n"
    "  DDP_STATE_DIR    of run --standalone: keep sockets, state and logs there\n"
    "  DDP_BINDIR       of run --standalone: where rendezvous and launcherd are\n"
    "  NO_COLOR, FORCE_COLOR      no colour, colour always, as CLICOLOR and CLICOLOR_FORCE; the "
    "ranks "
    "have them too\n"
    "  TMPDIR           of run --standalone: where its directory is made\n"
    "A job gets the environment of whoever submits it, but for DDP_*; --env sets more, --env-clear "
    "sends nothing else.\n"
    "It also gets the umask, the directory as typed, and the limits (ulimit) that somebody has "
    "set.\n"
    "The ranks then get torchrun's: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and the "
    "rest;\n"
    "those of a job of an array DDP_ARRAY_JOB_ID, DDP_ARRAY_INDEX, DDP_ARRAY_COUNT, DDP_ARRAY_MIN "
    "and "
    "DDP_ARRAY_MAX;\n"
    "of run at a terminal COLUMNS and LINES, its size without the prefix, unless they are set;\n"
    "and DDP_METRICS, a file of the rank to which it may append JSON lines for ddpctl metrics.\n";

static const char json[] =
    "--json prints one object, or one a line with -f, -w and for run; \"schema\":\"ddp.v1\". Times "
    "are RFC 3339 in UTC,\n"
    "durations seconds, sizes bytes; what is not known is null. Fields are only ever added.\n"
    "  status   job.id name user state generation restarts max_restarts restarts_used nodes "
    "nproc_per_node world_size ranks_running\n"
    "           where reason submitted_at started_at ended_at argv cwd\n"
    "           job.exit {code signal signal_name source}, null while it runs\n"
    "           job.progress {epoch epochs step steps loss samples_per_s generation "
    "checkpoint_step}: of the\n"
    "           newest generation that has told any\n"
    "           job.straggler, if a rank is slow; with --spares job.spares .spares_held "
    ".spares_warm\n"
    "           job.ranks[] {rank local_rank node pid slot state exit_code signal}\n"
    "           job.failed {rank node tail}; of a job of an array: job.array {job index count}\n"
    "           state: queued starting running restarting succeeded failed cancelled\n"
    "  why      why.job as of ps; running_s cancelled not_stored waits_for_ranks[] not_known[]\n"
    "           why.failure, why.failures[] {generation at ran_s alone_s class rank local_rank "
    "node "
    "pid exit_code signal signal_name\n"
    "           oom core cause error tail step resumed_step checkpoint_step world_size failed_too "
    "left "
    "stopped lost decision; of a hang stacks}\n"
    "           why.failed_ranks[] {rank node exit_code signal signal_name after_s}, "
    "why.moves[] {rank progress_s_ago}\n"
    "           why.store {address keys clients[] {rank node address connected_s waits waits_s "
    "missing[] missing_count}}\n"
    "           why.stacks[] {rank pid state wchan kernel kernel_problem python python_problem}\n"
    "           why.dials[] {rank pid to}: ranks that wait for a store which nobody serves\n"
    "  top      type at jobs[] as ps, with steps_per_s; nodes[] as nodes, without closed_slots, "
    "with "
    "gauges_s_ago\n"
    "           load cpus cpu_percent memory_total_bytes memory_available_bytes disk_total_bytes "
    "disk_free_bytes\n"
    "           nodes[].slot_list[] {slot state job_id rank gpu uuid utilization_percent "
    "memory_used_bytes\n"
    "           memory_total_bytes temperature_c power_w power_limit_w age_s error}\n"
    "  http     type url: once, when it serves\n"
    "  ps       jobs[] as status, without ranks\n"
    "  nodes    nodes[] {name state address slots slots_free slots_closed gpus drained pid version "
    "protocol\n"
    "           drains_on_term seen_s_ago reconnects notice refused_since}\n"
    "           nodes[].notice: what is wrong with the node, for people, or null; reconnects: how "
    "often in "
    "a row its\n"
    "           connection has not held\n"
    "           nodes[].drained {by reason at}, null unless an operator, or its launcherd before "
    "its "
    "end,\n"
    "           drained the node\n"
    "           nodes[].closed_slots[] {slot state job_id generation reason drained_by since}\n"
    "           state of a slot: free busy checking quarantined unknown drained\n"
    "  node     node: as one of nodes[], with slot_list[] of all its slots\n"
    "  node add, rotate, user ...\n"
    "           key {name role url old_until}; the key is in url, once\n"
    "  upgrade  upgrade {version protocol safe steps[] problems[] notes[]}\n"
    "           steps[] {kind name version stops_jobs do}; kind: backup standby server node "
    "clients\n"
    "  node list, user list\n"
    "           principals[] {name role connected keys created_at rotated_at seen_at}; role: node "
    "user admin\n"
    "  node remove, user remove\n"
    "           removed: as one of principals[]\n"
    "  login, logout\n"
    "           login {server name}, null after logout\n"
    "  events   events[] {id at job_id generation text}\n"
    "  metrics  one object a line: type job_id generation rank, and the fields of the line that "
    "was "
    "written\n"
    "  submit   job {id name state}, is_new\n"
    "  run, logs: {\"type\":\"log\", rank, node, generation, text}, {\"type\":\"generation\", "
    "...}, of run and wait at the end\n"
    "           {\"type\":\"end\", job, exit {code source}}\n"
    "           node: null in a generation before the newest, unless it was the newest while we "
    "read "
    "it\n"
    "Errors go to stderr: {\"error\":{\"code\",\"message\",\"hint\"}}.\n";

static void write_left(char letter, const char *name, const char *value, struct buf *out)
{
    char left[64];
    int length = snprintf(left, sizeof left, "  %c%c --%s%s%s", letter ? '-' : ' ',
                          letter ? letter : ' ', name, value ? " " : "", value ? value : "");

    buf_printf(out, "%s%*s", left, length < 36 ? 36 - length : 2, "");
}

static void write_rows(uint32_t verbs, struct buf *out)
{
    for (size_t i = 0; i < options_row_count; i++) {
        const struct option_row *row = &options_rows[i];

        if (!row->help || (verbs ? !(row->verbs & verbs) : row->verbs != 0))
            continue;
        write_left(row->letter, row->name, row->value, out);
        buf_add_text(out, row->help);
        if (row->synonyms)
            buf_printf(out, " (also --%s)", row->synonyms);
        buf_add_text(out, "\n");
    }
}

/* The options of the verb first, then those of all verbs. */
static void write_options(enum verb verb, struct buf *out)
{
    write_rows(verb, out);
    write_rows(0, out);
    write_left('h', "help", NULL, out);
    buf_add_text(out, "help on this verb\n");
    if (verb == VERB_HELP) {
        write_left(0, "version", NULL, out);
        buf_add_text(out, "print the version\n");
    }
}

static void write_verb(const struct command *command, struct buf *out)
{
    if (command->examples)
        buf_printf(out, "%s\n", command->examples);
    buf_printf(out, "usage: ddpctl %s\n%s\n\n", command->usage, command->summary);
    if (command->verb == VERB_BACKUP || command->verb == VERB_RESTORE)
        buf_add_text(out, "No server is asked: --server is refused, DDP_SERVER is not used.\n\n");
    if (command->verb == VERB_RUN)
        buf_add_text(out, "With --standalone DIR (--state-dir, else one under $TMPDIR that is "
                          "removed) holds rendezvous.sock and\n"
                          "each node's state and logs in node0, node1, ...; meanwhile this works:\n"
                          "  ddpctl --server unix:DIR/rendezvous.sock status @last\n"
                          "What --state-dir keeps is written to survive a crash of the machine; "
                          "without it, of the server alone.\n"
                          "torchrun's options are accepted; those that the server replaces "
                          "are ignored, with a message.\n\n");
    write_options(command->verb, out);
}

static void write_all(const struct command *table, size_t count, struct buf *out)
{
    buf_add_text(out, head);
    for (size_t i = 0; i < count; i++)
        buf_printf(out, "  %-10s %s\n", table[i].name, table[i].summary);
    buf_add_text(out, "\nFor all verbs:\n");
    write_options(VERB_HELP, out);
    buf_add_text(out, "\nMore: ddpctl help VERB, ddpctl help exit-codes, environment, json\n");
}

bool help_write(const struct command *table, size_t count, const char *topic, struct buf *out)
{
    const struct command *command = NULL;

    for (size_t i = 0; topic && i < count; i++)
        if (strcmp(table[i].name, topic) == 0)
            command = &table[i];

    if (!topic)
        write_all(table, count, out);
    else if (command)
        write_verb(command, out);
    else if (strcmp(topic, "exit-codes") == 0)
        buf_add_text(out, exit_codes);
    else if (strcmp(topic, "environment") == 0)
        buf_add_text(out, environment);
    else if (strcmp(topic, "json") == 0)
        buf_add_text(out, json);
    else
        return false;
    return true;
}
