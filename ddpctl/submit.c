#include "ddpctl/submit.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/msg.h"
#include "common/stage.h"
#include "common/text.h"
#include "ddpctl/attach.h"
#include "ddpctl/joint.h"
#include "ddpctl/nproc.h"
#include "ddpctl/request.h"
#include "ddpctl/run_files.h"
#include "ddpctl/script.h"
#include "ddpctl/slurm.h"
#include "ddpctl/stage_send.h"
#include "ddpctl/submit_only.h"
#include "ddpctl/submit_terminal.h"
#include "ddpctl/standalone.h"
#include "ddpctl/units.h"
#include "ddpctl/verbs.h"

extern char **environ;

#define ARENA_BYTES_MAX (24u * 1024u * 1024u)

/* Whether the job gets daemons of its own, instead of an existing server's. */
static bool is_private(const struct options *options)
{
    return options->standalone || options->slurm;
}

/* 128 random bits in hex: they identify the request when it is repeated. */
static enum status make_request_id(char id[REQUEST_ID_CHARS + 1], struct err *err)
{
    unsigned char bytes[REQUEST_ID_CHARS / 2];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return err_set(err, STATUS_SYSTEM, errno, "getrandom: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(id + 2 * i, 3, "%02x", bytes[i]);
    return STATUS_OK;
}

/* Reads the whole file into the arena. */
static enum status read_file(struct arena *arena, const char *path, const char **text,
                             size_t *byte_count, struct err *err)
{
    FILE *file = fopen(path, "re");
    char *bytes = arena_alloc(arena, SPEC_FILE_BYTES_MAX + 1);

    if (!file)
        return err_set(err, STATUS_NOT_FOUND, errno, "%.160s: %s", path, strerror(errno));
    *byte_count = bytes ? fread(bytes, 1, SPEC_FILE_BYTES_MAX + 1, file) : 0;
    (void)fclose(file);
    if (!bytes)
        return err_set(err, STATUS_MEMORY, 0, "out of memory");
    if (*byte_count > SPEC_FILE_BYTES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "%.160s: more than 1 MiB is no job specification",
                       path);
    *text = bytes;
    return STATUS_OK;
}

/* `submit JOB.json [-- CMD]`: reads the specification and skips its word. */
static enum status take_spec_file(struct submission *submission, struct ctl *ctl, struct err *err)
{
    const char *text = NULL;
    size_t byte_count = 0;
    enum status status;

    if (text_ends_with(ctl->words[0], ".yaml") || text_ends_with(ctl->words[0], ".yml"))
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "%.120s: job specifications in YAML come later; write JSON", ctl->words[0]);
    status = read_file(&submission->arena, ctl->words[0], &text, &byte_count, err);
    if (status == STATUS_OK)
        status =
            spec_parse(&submission->spec, &submission->arena, ctl->words[0], text, byte_count, err);
    ctl->words++;
    ctl->word_count--;
    return status;
}

static enum status take_launch(struct submission *submission, const struct ctl *ctl,
                               struct err *err)
{
    const struct options *options = &ctl->options;
    struct spec *spec = &submission->spec;
    const struct {
        enum launch_option option;
        const char *value;
    } given[] = {
        {LAUNCH_ROLE, options->role},
        {LAUNCH_RUN_ID, options->rdzv_id},
        {LAUNCH_ENV_STYLE, options->env_style},
        {LAUNCH_VIRTUAL_LOCAL_RANK, options->virtual_local_rank ? "on" : NULL},
        {LAUNCH_STDIN, options->stdin_rank},
        {LAUNCH_TTY, options->tty ? submission->terminal_size : NULL},
        {LAUNCH_STREAMS, submit_is_one_stream(submission, ctl) ? "one" : NULL},
    };
    const struct { /* a specification may have others */
        enum launch_option option;
        const char *value;
    } of_caller[] = {{LAUNCH_UMASK, submission->mask}, {LAUNCH_LIMITS, submission->limits}};
    const struct msg_pair_list present = {.items = spec->launch, .count = spec->launch_count};
    enum status status = STATUS_OK;

    submit_terminal_size(submission->terminal_size);
    caller_mask(submission->mask);
    caller_limits(submission->limits);
    for (size_t i = 0; status == STATUS_OK && i < sizeof given / sizeof given[0]; i++)
        if (given[i].value != NULL)
            status = spec_set_launch(spec, given[i].option, given[i].value, err);
    for (size_t i = 0; status == STATUS_OK && i < sizeof of_caller / sizeof of_caller[0]; i++)
        if (of_caller[i].value[0] != '\0' && launch_value(&present, of_caller[i].option) == NULL)
            status = spec_set_launch(spec, of_caller[i].option, of_caller[i].value, err);
    return status;
}

static enum status take_options(struct submission *submission, const struct ctl *ctl,
                                struct err *err)
{
    const struct options *options = &ctl->options;
    struct spec *spec = &submission->spec;
    enum status status = STATUS_OK;

    spec->name = options->name ? options->name : spec->name;
    if (options->max_restarts != OPTION_NO_NUMBER)
        spec_set_restarts(spec, options->max_restarts);
    if (options->grace_us != OPTION_NO_DURATION)
        spec->grace_us = options->grace_us;
    if (options->time_us != OPTION_NO_DURATION)
        spec->time_limit_us = options->time_us;
    /* Nodes of our own are still starting: a server that knows only some would refuse the job. */
    spec->wait_for_nodes = spec->wait_for_nodes || options->wait_for_nodes || is_private(options);
    if (options->nodes)
        status = spec_nodes_parse(options->nodes, &spec->nodes, &spec->nodes_min, err);
    if (options->spares != OPTION_NO_NUMBER)
        spec->spares = options->spares;
    spec->replace_stragglers |= options->replace_stragglers;
    spec->requeue_at_limit |= options->requeue_at_limit;
    if (status == STATUS_OK && options->hang_timeout)
        status = spec_hang_parse(spec, options->hang_timeout, err);
    if (status == STATUS_OK && options->warn)
        status = spec_warn_parse(spec, options->warn, err);
    spec->after = options->after.count > 0 ? NULL : spec->after; /* replaces the file's list */
    for (uint32_t i = 0; status == STATUS_OK && i < options->after.count; i++)
        status = spec_after_parse(spec, &submission->arena, options->after.items[i], err);
    if (options->array)
        spec->array = options->array;
    if (status == STATUS_OK && options->priority)
        status = spec_priority_parse(options->priority, &spec->priority, err);
    if (status == STATUS_OK)
        status = nproc_take(spec, ctl, err);
    if (status == STATUS_OK && options->slurm)
        status = slurm_take(spec, options, err);
    if (status == STATUS_OK)
        status = torchrun_take(options, spec->nproc_per_node, &submission->hidden, err);
    if (status == STATUS_OK)
        status = take_launch(submission, ctl, err);
    for (uint32_t i = 0; status == STATUS_OK && i < options->env.count; i++)
        status = spec_set_env_text(spec, &submission->arena, options->env.items[i], err);
    return status;
}

/* The working directory, absolute: --cwd, else that of the file, else the current directory. */
static enum status choose_cwd(struct submission *submission, const struct ctl *ctl, struct err *err)
{
    const char *wanted = ctl->options.cwd ? ctl->options.cwd : submission->spec.cwd;

    if (ctl->options.stage)
        wanted = ctl->options.stage; /* replaced once it is packed */
    return caller_choose_directory(wanted, is_private(&ctl->options), submission->cwd, err);
}

/* Says which of our variables the ranks do not get, in one line for each reason. */
static void tell_left_out(struct ctl *ctl, struct spec_left_out *left_out)
{
    buf_add(&left_out->ours_names, "", 1);
    buf_add(&left_out->invalid_names, "", 1);
    if (left_out->ours > 0 && !left_out->ours_names.failed)
        screen_message(
            &ctl->screen,
            "not sent to the job: %s: DDP_* and NCCL_SOCKET_MAGIC are the launcher's own; "
            "`-- env NAME=VALUE CMD` sets one",
            left_out->ours_names.bytes);
    if (left_out->invalid > 0 && !left_out->invalid_names.failed)
        screen_message(
            &ctl->screen,
            "not sent to the job: %s: text that is not UTF-8; set it in a script that the "
            "job runs (-- ./run.sh)",
            left_out->invalid_names.bytes);
    buf_free(&left_out->ours_names);
    buf_free(&left_out->invalid_names);
}

static enum status take_environ(struct submission *submission, struct ctl *ctl, struct err *err)
{
    char **variables = environ, **of_slurm = NULL;
    struct spec_left_out left_out = {0};
    enum status status;

    if (ctl->options.env_clear)
        return STATUS_OK;
    if (ctl->options.slurm)
        variables = of_slurm = slurm_rank_environ();
    if (!variables)
        return err_set(err, STATUS_MEMORY, 0, "out of memory");
    status = spec_add_environ(&submission->spec, &submission->arena, variables, &left_out, err);
    free(of_slurm);
    tell_left_out(ctl, &left_out);
    return status;
}

/* --stage: packs the directory; the job's working directory then names the archive. */
static enum status pack(struct submission *submission, struct ctl *ctl, struct err *err)
{
    struct stage_packed *packed = &submission->packed;
    enum status status;

    if (ctl->options.stage == NULL)
        return STATUS_OK;
    if (ctl->options.cwd)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--stage and --cwd do not go together: ranks run in the staged directory");
    if (is_private(&ctl->options))
        return err_set(
            err, STATUS_BAD_INPUT, 0,
            "--stage is for the nodes of a server; with --standalone and --slurm use --cwd");
    status = stage_pack(ctl->options.stage, packed, err);
    if (status != STATUS_OK)
        return status;
    submission->is_staged = true;
    (void)snprintf(submission->cwd, sizeof submission->cwd, STAGE_PREFIX "%s", packed->hash);
    screen_message(&ctl->screen, "staging %s: %u files, %.1f MiB (without .git and __pycache__)",
                   ctl->options.stage, packed->file_count, (double)packed->byte_count / (1 << 20));
    return STATUS_OK;
}

static enum status make(struct submission *submission, struct ctl *ctl, struct err *err)
{
    struct spec *spec = &submission->spec;
    enum status status;
    bool has_file = ctl->word_count > 0 && (text_ends_with(ctl->words[0], ".json") ||
                                            text_ends_with(ctl->words[0], ".yaml") ||
                                            text_ends_with(ctl->words[0], ".yml"));

    submission->arena.byte_limit = ARENA_BYTES_MAX;
    spec_init(spec);
    status = has_file ? take_spec_file(submission, ctl, err) : STATUS_OK;
    if (status == STATUS_OK)
        status = choose_cwd(submission, ctl, err);
    if (status == STATUS_OK)
        status = script_take(submission, ctl, err);
    if (status == STATUS_OK)
        status = pack(submission, ctl, err);
    if (status == STATUS_OK)
        status = take_options(submission, ctl, err);
    if (status == STATUS_OK)
        status = take_environ(submission, ctl, err);
    if (status == STATUS_OK)
        submit_terminal_environ(submission, ctl);
    if (status == STATUS_OK)
        status = make_request_id(submission->request_id, err);
    if (status != STATUS_OK)
        return status;
    if (spec->name)
        (void)snprintf(submission->name, sizeof submission->name, "%s", spec->name);
    else
        spec_default_name(&spec->argv, submission->name);
    if (spec->name && strlen(spec->name) >= sizeof submission->name)
        return err_set(err, STATUS_TOO_BIG, 0, "the name '%.80s...' is longer than %u characters",
                       spec->name, JOB_NAME_BYTES_MAX - 1);
    status = spec_choose_store(spec, ctl->options.no_store, err);
    if (status != STATUS_OK)
        return status;
    return spec_request(spec, submission->request_id, submission->name, submission->cwd,
                        &submission->request, err);
}

int submission_make(struct submission *submission, struct ctl *ctl)
{
    struct err err = {0};

    for (uint32_t i = 0; i < ctl->options.ignored_count; i++)
        screen_message(&ctl->screen, "--%s has no effect here: %s", ctl->options.ignored[i],
                       torchrun_instead(ctl->options.ignored[i]));
    if (ctl->options.rdzv_endpoint)
        screen_message(&ctl->screen, "--rdzv-endpoint has no effect here: %s",
                       torchrun_instead("rdzv-endpoint"));
    if (ctl->options.log_dir && !is_private(&ctl->options) && !ctl->options.duplicate_out &&
        !ctl->options.duplicate_error)
        screen_message(&ctl->screen,
                       "--log-dir is for --standalone and --slurm and is ignored: nodes "
                       "keep the logs of their ranks, ddpctl logs shows them");
    if (make(submission, ctl, &err) == STATUS_OK)
        return 0;
    return ctl_fail_err(ctl, CTL_USAGE, &err, "");
}

void submission_close(struct submission *submission)
{
    arena_reset(&submission->arena);
    if (submission->is_staged)
        (void)close(submission->packed.fd);
}

static void on_run_submitted(struct attach *attach, uint64_t job_id, bool is_new)
{
    struct ctl *ctl = attach->ctl;
    struct buf out = {0};

    if (strcmp(ctl->verb_name, "submit") == 0 &&
        !ctl->screen.json) { /* the result of submit, before the logs */
        buf_printf(&out, "%llu\n", (unsigned long long)job_id);
        (void)screen_out(&ctl->screen, &out);
    }
    output_submitted(attach->options.submit, job_id, is_new, ctl_server_shown(ctl), &out);
    buf_add(&out, "", 1);
    if (!out.failed)
        screen_message(&ctl->screen, "%s", out.bytes);
    buf_free(&out);
}

static void on_run_made(struct attach *attach, uint64_t job_id, bool is_new)
{
    (void)is_new; /* it was, and attach.h has sent it again */
    on_run_submitted(attach, job_id, true);
}

static void on_run_done(struct attach *attach)
{
    attach_show_end(attach);
}

/* Reads --prefix, --stream, --timestamps and --raw. */
static int take_view(struct ctl *ctl, bool splits, struct view_options *view)
{
    struct err err = {0};

    *view = (struct view_options){
        .has_times = ctl->options.timestamps, .is_raw = ctl->options.raw, .splits = splits};
    if (view_options_parse(ctl->options.prefix, ctl->options.stream, view, &err) != STATUS_OK)
        return ctl_fail_err(ctl, CTL_USAGE, &err, "");
    return CTL_OK;
}

/* Reads --stdin and --tty. */
static int take_stdin(struct ctl *ctl, const struct submission *submission,
                      struct attach_options *options)
{
    const uint32_t world = submission->request.nodes * submission->request.nproc_per_node;
    char message[128];

    options->has_terminal = ctl->options.tty;
    options->has_stdin = ctl->options.stdin_rank != NULL;
    if (!options->has_stdin)
        return CTL_OK;
    if (launch_rank(ctl->options.stdin_rank, &options->stdin_rank) && options->stdin_rank < world)
        return CTL_OK;
    (void)snprintf(message, sizeof message,
                   "--stdin %.20s: there is no such rank, the job has ranks 0 to %u",
                   ctl->options.stdin_rank, world - 1);
    return ctl_fail(ctl, CTL_USAGE, message, "");
}

static int run_attached(struct ctl *ctl, struct submission *submission,
                        struct attach_options *options)
{
    enum joint joint = JOINT_NO;
    int rc = CTL_OK;

    if (ctl->options.standalone)
        return standalone_run(ctl, options);
    if (ctl->options.slurm)
        return slurm_run(ctl, options);
    if (strcmp(ctl->verb_name, "run") == 0)
        rc = joint_submit(ctl, submission, &joint);
    if (joint != JOINT_NO)
        options->on_submitted = joint == JOINT_MADE ? on_run_made : NULL;
    return rc == CTL_OK ? attach_run(ctl, options) : rc;
}

static int follow_submission(struct ctl *ctl, struct submission *submission)
{
    static uint8_t mask[RANKS_PER_JOB_MAX / 8];
    struct attach_options options = {
        .submit = &submission->request,
        .follow = {.keep_on = true, .from_generation = 1},
        .show_logs = strcmp(ctl->verb_name, "run") == 0 || ctl->options.follow,
        .hide_progress = ctl->options.no_progress,
        .job_decides = true,
        .can_detach = true,
        .waits_for_room = ctl->options.wait_for_room,
        .patience_us = ctl->options.patience_us,
        .on_submitted = on_run_submitted,
        .on_done = on_run_done,
    };
    struct run_files files = {.folder.dir = ""};
    struct err err = {0};
    int rc;

    if (follow_ranks_parse(ctl->options.rank ? ctl->options.rank : "all", &options.follow, mask,
                           &err) != STATUS_OK)
        return ctl_fail_err(ctl, CTL_USAGE, &err, "");
    if (options.follow.ranks_failed)
        return ctl_fail(ctl, CTL_USAGE, "--rank failed: no rank has failed before the start",
                        "ddpctl logs JOB --rank failed shows it when it has");
    rc = take_view(ctl, true, &options.view);
    if (rc == CTL_OK)
        rc = take_stdin(ctl, submission, &options);
    if (rc != CTL_OK)
        return rc;
    if (ctl->options.signal != NULL &&
        signal_parse(ctl->options.signal, &options.first_signal, &err) != STATUS_OK)
        return ctl_fail_err(ctl, CTL_USAGE, &err, "");
    if (ctl->options.signals_to_handle != NULL &&
        torchrun_signals(ctl->options.signals_to_handle, &options.more_signals, &err) != STATUS_OK)
        return ctl_fail_err(ctl, CTL_USAGE, &err, "");
    options.view.hidden = submission->hidden;
    options.view.line_prefix = ctl->options.log_line_prefix_template;
    options.view.role = ctl->options.role;
    rc = run_files_open(&files, ctl, submission->request.nodes * submission->request.nproc_per_node,
                        &options);
    if (rc == CTL_OK)
        rc = run_attached(ctl, submission, &options);
    run_files_close(&files);
    return rc;
}

/* Checks --rank before the job exists: a rank that it will not have is a mistake in the command. */
static int check_ranks(struct ctl *ctl, const struct submission *submission)
{
    static uint8_t mask[RANKS_PER_JOB_MAX / 8];
    uint32_t world = submission->request.nodes * submission->request.nproc_per_node;
    struct follow_options options = {0};
    struct err err = {0};

    if (follow_ranks_parse(ctl->options.rank ? ctl->options.rank : "all", &options, mask, &err) !=
        STATUS_OK)
        return ctl_fail_err(ctl, CTL_USAGE, &err, "");
    for (uint32_t i = world; i < RANKS_PER_JOB_MAX; i++) {
        char message[128];

        if (!(mask[i / 8] >> (i % 8) & 1))
            continue;
        (void)snprintf(message, sizeof message,
                       "--rank %u: there is no such rank, the job has ranks 0 to %u", i, world - 1);
        return ctl_fail(ctl, CTL_USAGE, message, "--rank says whose logs are shown");
    }
    return CTL_OK;
}

static int submit(struct ctl *ctl, bool follow)
{
    struct submission submission = {0};
    const char *nproc = ctl->options.nproc_per_node;
    int rc = 0;

    if (nproc && nproc_is_word(nproc) && !is_private(&ctl->options))
        rc = nproc_of_nodes(ctl);
    if (rc == 0)
        rc = submission_make(&submission, ctl);
    if (rc == 0)
        rc = check_ranks(ctl, &submission);
    if (rc == 0 && follow && submission.spec.array)
        rc = ctl_fail(ctl, CTL_USAGE, "an array is many jobs, and only one can be followed",
                      "ddpctl submit --array ..., then ddpctl wait ID or ddpctl logs -f ID_INDEX");
    if (rc == 0 && submission.is_staged && !ctl->options.dry_run)
        rc = stage_send(ctl, &submission.packed);
    if (rc == 0 && ctl->options.dry_run)
        rc = submit_dry(ctl, &submission);
    else if (rc == 0 && follow)
        rc = follow_submission(ctl, &submission);
    else if (rc == 0)
        rc = submit_only(ctl, &submission);
    submission_close(&submission);
    return rc;
}

int verb_submit(struct ctl *ctl)
{
    ctl->is_attached = ctl->options.wait || ctl->options.follow;
    return submit(ctl, ctl->is_attached);
}

int verb_run(struct ctl *ctl)
{
    if ((ctl->options.state_dir || ctl->options.bindir) && !is_private(&ctl->options))
        return ctl_fail(ctl, CTL_USAGE, "--state-dir and --bindir go with --standalone or --slurm",
                        "");
    if (ctl->options.standalone && ctl->options.slurm)
        return ctl_fail(ctl, CTL_USAGE, "--standalone and --slurm do not go together",
                        "--slurm runs on the nodes of an allocation, --standalone on this machine");
    return submit(ctl, true);
}

int verb_logs(struct ctl *ctl)
{
    static uint8_t mask[RANKS_PER_JOB_MAX / 8];
    struct attach_options options = {
        .follow = {.keep_on = ctl->options.follow,
                   .generation = ctl->options.generation,
                   .previous = ctl->options.previous,
                   .tail_lines = ctl->options.tail},
        .show_logs = true,
        .can_detach = true,
        .patience_us = ctl_patience_us(ctl),
        .on_done = on_run_done,
    };
    struct err err = {0};
    int rc;

    if (ctl->word_count != 1)
        return ctl_fail(ctl, CTL_USAGE,
                        ctl->word_count ? "logs: of one job at a time" : "logs: which job?",
                        "name it by number, name or @last; ddpctl ps -a lists them");
    if (strlen(ctl->words[0]) == 0 || strlen(ctl->words[0]) >= JOB_NAME_BYTES_MAX)
        return ctl_fail(ctl, CTL_USAGE, "a job is named by its number, its name or @last",
                        "ddpctl ps -a lists them");
    if (options.follow.generation && options.follow.previous)
        return ctl_fail(ctl, CTL_USAGE, "--generation and --previous do not go together", "");
    if (follow_ranks_parse(ctl->options.rank ? ctl->options.rank : "all", &options.follow, mask,
                           &err) != STATUS_OK)
        return ctl_fail_err(ctl, CTL_USAGE, &err, "");
    rc = take_view(ctl, false, &options.view);
    if (rc != CTL_OK)
        return rc;
    options.job = ctl->words[0];
    return attach_run(ctl, &options);
}
