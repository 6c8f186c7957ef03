#include "ddpctl/torchrun.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddpctl/units.h"

static const struct {
    const char *own, *pet;
} variables[] = {
    {"DDP_NODES", "PET_NNODES"},
    {"DDP_NPROC_PER_NODE", "PET_NPROC_PER_NODE"},
    {"DDP_MAX_RESTARTS", "PET_MAX_RESTARTS"},
    {"DDP_STANDALONE", "PET_STANDALONE"},
    {"DDP_ROLE", "PET_ROLE"},
    {"DDP_MODULE", "PET_MODULE"},
    {"DDP_NO_PYTHON", "PET_NO_PYTHON"},
    {"DDP_RUN_PATH", "PET_RUN_PATH"},
    {"DDP_LOG_DIR", "PET_LOG_DIR"},
    {"DDP_REDIRECTS", "PET_REDIRECTS"},
    {"DDP_TEE", "PET_TEE"},
    {"DDP_LOG_LINE_PREFIX_TEMPLATE", "PET_LOG_LINE_PREFIX_TEMPLATE"},
    {"DDP_LOG_LINE_PREFIX_TEMPLATE", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"},
    {"DDP_LOCAL_RANKS_FILTER", "PET_LOCAL_RANKS_FILTER"},
    {"DDP_SIGNALS_TO_HANDLE", "PET_SIGNALS_TO_HANDLE"},
    {"DDP_SIGNALS_TO_HANDLE", "TORCHELASTIC_SIGNALS_TO_HANDLE"},
    {"DDP_DUPLICATE_STDOUT_FILTERS", "PET_DUPLICATE_STDOUT_FILTERS"},
    {"DDP_DUPLICATE_STDERR_FILTERS", "PET_DUPLICATE_STDERR_FILTERS"},
    {"DDP_NODE_RANK", "PET_NODE_RANK"},
    {"DDP_RDZV_ID", "PET_RDZV_ID"},
    {"DDP_RDZV_ENDPOINT", "PET_RDZV_ENDPOINT"},
    {"DDP_VIRTUAL_LOCAL_RANK", "PET_VIRTUAL_LOCAL_RANK"},
    {"DDP_GRACE", "PET_SHUTDOWN_TIMEOUT"},
    {"DDP_GRACE", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"},
};

static const struct {
    const char *option, *instead;
} without_effect[] = {
    {"rdzv-backend", "the server is the rendezvous"},
    {"rdzv-endpoint", "the server is the rendezvous; --server says where it is"},
    {"rdzv-conf", "the server is the rendezvous"},
    {"master-addr", "rank 0's node is the master address"},
    {"master-port", "each generation has a free port of its own"},
    {"local-addr", "launcherd --address says how a node is reached"},
    {"monitor-interval", "the end of a rank is seen at once"},
    {"start-method", "ranks are started as programs"},
    {"event-log-handler", "ddpctl events -f shows events"},
    {"logs-specs", "ddpctl logs reads the log of each rank"},
    {"numa-binding", "put numactl before the command, in a script that reads LOCAL_RANK"},
};

const char *torchrun_variable(const char *name)
{
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = strcmp(variables[i].own, name) == 0 ? getenv(variables[i].pet) : NULL;
        if (value != NULL)
            return value;
    }
    return NULL;
}

const char *torchrun_instead(const char *option)
{
    for (size_t i = 0; i < sizeof without_effect / sizeof without_effect[0]; i++)
        if (strcmp(without_effect[i].option, option) == 0)
            return without_effect[i].instead;
    return "the server does that";
}

/* Parses "3" (all local ranks) or "0:1,1:2" (some): 0 none, 1 stdout, 2 stderr, 3 both. */
static enum status parse_streams(const char *option, const char *text,
                                 uint8_t streams[SLOTS_PER_NODE_MAX], struct err *err)
{
    memset(streams, 0, SLOTS_PER_NODE_MAX);
    if (text[0] >= '0' && text[0] <= '3' && text[1] == '\0') {
        memset(streams, text[0] - '0', SLOTS_PER_NODE_MAX);
        return STATUS_OK;
    }
    for (const char *at = text;;) {
        char *end = NULL;
        unsigned long rank = at[0] >= '0' && at[0] <= '9' ? strtoul(at, &end, 10) : ULONG_MAX;

        if (rank >= SLOTS_PER_NODE_MAX || *end != ':' || end[1] < '0' || end[1] > '3' ||
            (end[2] != '\0' && end[2] != ','))
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "--%s %.60s: 0, 1 (stdout), 2 (stderr) or 3 (both) is expected, or one "
                           "for each local rank like 0:3,1:1",
                           option, text);
        streams[rank] = (uint8_t)(end[1] - '0');
        if (end[2] == '\0')
            return STATUS_OK;
        at = end + 3;
    }
}

/* Parses "0,2": the local ranks that are shown. */
static enum status parse_local_ranks(const char *text, uint32_t ranks_per_node, uint64_t *mask,
                                     struct err *err)
{
    *mask = 0;
    for (const char *at = text;;) {
        char *end = NULL;
        unsigned long rank = at[0] >= '0' && at[0] <= '9' ? strtoul(at, &end, 10) : ULONG_MAX;

        if (rank == ULONG_MAX || (*end != '\0' && *end != ','))
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "--local-ranks-filter %.60s: local ranks like 0,2 are expected", text);
        if (rank >= ranks_per_node)
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "--local-ranks-filter %.60s: local ranks go from 0 to %u", text,
                           ranks_per_node - 1);
        *mask |= 1ull << rank;
        if (*end == '\0')
            return STATUS_OK;
        at = end + 1;
    }
}

enum status torchrun_take(const struct options *options, uint32_t ranks_per_node,
                          struct view_hidden *hidden, struct err *err)
{
    uint64_t shown = UINT64_MAX;
    enum status status = STATUS_OK;

    memset(hidden, 0, sizeof *hidden);
    hidden->local_count = ranks_per_node;
    if (options->node_rank && strcmp(options->node_rank, "0") != 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--node-rank %.20s: one ddpctl submits the job for all its nodes; run it "
                       "once, without --node-rank",
                       options->node_rank);
    if (options->redirects)
        status = parse_streams("redirects", options->redirects, hidden->streams, err);
    if (status == STATUS_OK && options->tee)
        status = parse_streams("tee", options->tee, hidden->teed, err);
    if (status == STATUS_OK && options->local_ranks_filter)
        status = parse_local_ranks(options->local_ranks_filter, ranks_per_node, &shown, err);
    for (uint32_t i = 0; i < SLOTS_PER_NODE_MAX; i++) {
        hidden->streams[i] = (uint8_t)(hidden->streams[i] & ~hidden->teed[i]);
        if (!(shown >> i & 1))
            hidden->streams[i] = VIEW_OUT | VIEW_ERROR;
    }
    return status;
}

/* The macro at `at`, as "${rank}" or "$rank"; its text is written. Returns how many characters it has; 0: none. */
static size_t take_macro(const char *at, const struct torchrun_line *line, struct buf *out)
{
    static const char *const names[] = {"role_name", "local_rank", "rank", "hostname"};
    const bool is_braced = at[0] == '$' && at[1] == '{';
    const char *name = at + 1 + is_braced;
    const size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz_");

    if (at[0] != '$' || (is_braced && name[length] != '}'))
        return 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) != length || strncmp(names[i], name, length) != 0)
            continue;
        if (i == 0 || i == 3)
            buf_add_text(out, i == 0 ? line->role : line->host);
        else
            buf_printf(out, "%u", i == 1 ? line->local_rank : line->rank);
        return 1 + length + 2 * (size_t)is_braced;
    }
    return 0;
}

void torchrun_prefix(const char *template, const struct torchrun_line *line,
                     char prefix[VIEW_PREFIX_BYTES])
{
    struct buf out = {0};

    for (const char *at = template != NULL ? template : "[${role_name}${local_rank}]:";
         *at != '\0';) {
        const size_t length = take_macro(at, line, &out);

        if (length == 0)
            buf_add(&out, at, 1);
        at += length == 0 ? (at[0] == '$' && at[1] == '$' ? 2 : 1) : length;
    }
    buf_add(&out, "", 1);
    (void)snprintf(prefix, VIEW_PREFIX_BYTES, "%s", out.failed ? "" : out.bytes);
    buf_free(&out);
}

enum status torchrun_signals(const char *text, uint64_t *more, struct err *err)
{
    static const uint32_t handled[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    static const uint32_t refused[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

    *more = 0;
    while (*text != '\0') {
        const size_t length = strcspn(text, ",");
        uint32_t number = 0;
        char name[24];

        (void)snprintf(name, sizeof name, "%.*s", (int)length, text);
        if (length >= sizeof name || signal_parse(name, &number, err) != STATUS_OK || number >= 64)
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "--signals-to-handle: '%.20s' is no signal; examples: SIGTERM,SIGUSR1",
                           name);
        for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
            if (refused[i] == number)
                return err_set(err, STATUS_BAD_INPUT, 0,
                               "--signals-to-handle: %.20s cannot be passed on", name);
        *more |= 1ull << number;
        text += length + (text[length] == ',');
    }
    for (size_t i = 0; i < sizeof handled / sizeof handled[0]; i++)
        *more &= ~(1ull << handled[i]);
    return STATUS_OK;
}
