#include "ddpctl/submit.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/msg.h"
#include "common/stage.h"
#include "common/utf8.h"
#include "ddpctl/attach.h"
#include "ddpctl/request.h"
#include "ddpctl/stage_send.h"
#include "ddpctl/standalone.h"
#include "ddpctl/verbs.h"

extern char **environ;

#define ARENA_BYTES_MAX (8u * 1024u * 1024u)

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

static bool ends_in(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);

    return length > end_length && strcmp(text + length - end_length, end) == 0;
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

    if (ends_in(ctl->words[0], ".yaml") || ends_in(ctl->words[0], ".yml"))
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

/* Whether this file says by its first line what runs it. */
static bool names_interpreter(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char mark[2];
    bool names;

    if (fd < 0)
        return false;
    names = read(fd, mark, sizeof mark) == (ssize_t)sizeof mark && memcmp(mark, "#!", 2) == 0;
    (void)close(fd);
    return names;
}

/* As torchrun does: `train.py` is run by python3, unbuffered, unless it is executable and begins with
 * #!. */
static bool wants_python(const struct ctl *ctl, const char *word, const char *cwd)
{
    char path[PATH_MAX];

    if (ctl->options.no_python || !ends_in(word, ".py"))
        return false;
    if (snprintf(path, sizeof path, "%s/%s", word[0] == '/' ? "" : cwd, word) >= (int)sizeof path)
        return false;
    return access(path, X_OK) != 0 || !names_interpreter(path);
}

static enum status take_command(struct submission *submission, struct ctl *ctl, struct err *err)
{
    const char **words;
    uint32_t count = 0;

    if (ctl->word_count == 0)
        return STATUS_OK;
    words = arena_alloc(&submission->arena, ((size_t)ctl->word_count + 3) * sizeof *words);
    if (!words)
        return err_set(err, STATUS_TOO_BIG, 0, "the command is too long");
    if (ctl->options.module || wants_python(ctl, ctl->words[0], submission->cwd)) {
        words[count++] = "python3";
        words[count++] = "-u";
        if (ctl->options.module)
            words[count++] = "-m";
        screen_message(&ctl->screen, "running %s as: python3 -u %s%s", ctl->words[0],
                       ctl->options.module ? "-m " : "", ctl->words[0]);
    }
    for (int i = 0; i < ctl->word_count; i++)
        words[count++] = ctl->words[i];
    submission->spec.argv = (struct msg_text_list){.items = words, .count = count};
    return STATUS_OK;
}

/* "4"; with --standalone also gpu, cpu or auto: what this machine has. */
static enum status take_nproc(struct spec *spec, const struct ctl *ctl, struct err *err)
{
    const char *text = ctl->options.nproc_per_node;
    uint32_t gpus, cores;
    uint64_t number = 0;
    enum status status;

    if (!text)
        return STATUS_OK;
    spec->nproc_given = true;
    if (strcmp(text, "gpu") != 0 && strcmp(text, "cpu") != 0 && strcmp(text, "auto") != 0) {
        status =
            options_parse_number("--nproc-per-node", text, 1, SLOTS_PER_NODE_MAX, &number, err);
        if (status == STATUS_OK)
            spec->nproc_per_node = (uint32_t)number;
        return status;
    }
    if (!ctl->options.standalone)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "--nproc-per-node %s works with --standalone only: nodes of a server "
                       "differ; give a number",
                       text);
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

static enum status take_options(struct submission *submission, const struct ctl *ctl,
                                struct err *err)
{
    const struct options *options = &ctl->options;
    struct spec *spec = &submission->spec;
    enum status status = STATUS_OK;

    if (options->name)
        spec->name = options->name;
    if (options->max_restarts != OPTION_NO_NUMBER)
        spec->max_restarts = options->max_restarts;
    if (options->grace_us != OPTION_NO_DURATION)
        spec->grace_us = options->grace_us;
    if (options->time_us != OPTION_NO_DURATION)
        spec->time_limit_us = options->time_us;
    /* The nodes of --standalone are still starting: a server that knows only some would refuse. */
    spec->wait_for_nodes = spec->wait_for_nodes || options->wait_for_nodes || options->standalone;
    if (options->nodes)
        status = spec_nodes_parse(options->nodes, &spec->nodes, err);
    if (status == STATUS_OK && options->priority)
        status = spec_priority_parse(options->priority, &spec->priority, err);
    if (status == STATUS_OK)
        status = take_nproc(spec, ctl, err);
    for (uint32_t i = 0; status == STATUS_OK && i < options->env.count; i++)
        status = spec_set_env_text(spec, &submission->arena, options->env.items[i], err);
    return status;
}

/* --cwd, else the one of the file, made absolute; else the current directory. */
static enum status choose_cwd(struct submission *submission, const struct ctl *ctl, struct err *err)
{
    const char *wanted = ctl->options.cwd ? ctl->options.cwd : submission->spec.cwd;
    char here[PATH_MAX], hash[STAGE_HASH_CHARS + 1];
    struct stat info;
    int length;

    if (ctl->options.stage)
        wanted = ctl->options.stage; /* until it is packed */

    if (!getcwd(here, sizeof here))
        return err_set(err, STATUS_SYSTEM, errno, "the current directory is gone: %s",
                       strerror(errno));
    if (!wanted)
        length = snprintf(submission->cwd, sizeof submission->cwd, "%s", here);
    else if (wanted[0] == '/' || stage_of_cwd(wanted, hash))
        length = snprintf(submission->cwd, sizeof submission->cwd, "%s", wanted);
    else
        length = snprintf(submission->cwd, sizeof submission->cwd, "%s/%s", here, wanted);
    if (length >= (int)sizeof submission->cwd)
        return err_set(err, STATUS_TOO_BIG, 0, "the path of the working directory is too long");
    if (!utf8_is_valid(submission->cwd, strlen(submission->cwd)))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "the working directory %.160s has a name that is not valid UTF-8",
                       submission->cwd);
    if (ctl->options.standalone && (stat(submission->cwd, &info) != 0 || !S_ISDIR(info.st_mode)))
        return err_set(err, STATUS_NOT_FOUND, errno, "--cwd: there is no folder %.200s",
                       submission->cwd);
    return STATUS_OK;
}

static enum status take_environ(struct submission *submission, const struct ctl *ctl,
                                struct err *err)
{
    uint32_t left_out = 0;

    if (ctl->options.env_clear)
        return STATUS_OK;
    return spec_add_environ(&submission->spec, &submission->arena, environ, &left_out, err);
}

/* --stage: the working directory is the archive. */
static enum status pack(struct submission *submission, struct ctl *ctl, struct err *err)
{
    struct stage_packed *packed = &submission->packed;
    enum status status;

    if (ctl->options.stage == NULL)
        return STATUS_OK;
    if (ctl->options.cwd)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--stage and --cwd do not go together: ranks run in the staged directory");
    if (ctl->options.standalone)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--stage is for the nodes of a server; --standalone runs here: use --cwd");
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
    bool has_file =
        ctl->word_count > 0 && (ends_in(ctl->words[0], ".json") ||
                                ends_in(ctl->words[0], ".yaml") || ends_in(ctl->words[0], ".yml"));

    submission->arena.byte_limit = ARENA_BYTES_MAX;
    status = spec_init(spec, &submission->arena, err);
    if (status == STATUS_OK && has_file)
        status = take_spec_file(submission, ctl, err);
    if (status == STATUS_OK)
        status = choose_cwd(submission, ctl, err);
    if (status == STATUS_OK)
        status = take_command(submission, ctl, err);
    if (status == STATUS_OK)
        status = pack(submission, ctl, err);
    if (status == STATUS_OK)
        status = take_options(submission, ctl, err);
    if (status == STATUS_OK)
        status = take_environ(submission, ctl, err);
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
    return spec_request(spec, submission->request_id, submission->name, submission->cwd,
                        &submission->request, err);
}

int submission_make(struct submission *submission, struct ctl *ctl)
{
    struct err err = {0};

    for (uint32_t i = 0; i < ctl->options.ignored_count; i++)
        screen_message(&ctl->screen, "--%s is not needed here: the server does that; ignored",
                       ctl->options.ignored[i]);
    if (ctl->options.log_dir && !ctl->options.standalone)
        screen_message(&ctl->screen, "--log-dir is for --standalone and is ignored: nodes keep the "
                                     "logs of their ranks, ddpctl logs shows them");
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

static int print_request(struct ctl *ctl, const struct submission *submission)
{
    struct buf out = {0};

    output_submit_json(&submission->request, &out);
    return screen_out(&ctl->screen, &out) == STATUS_OK ? CTL_OK : CTL_FAILED;
}

static int on_submitted(struct ctl *ctl, const struct msg *msg, void *context)
{
    const struct submission *submission = context;
    struct buf out = {0}, words = {0};

    if (ctl->screen.json)
        output_submitted_json(&submission->request, msg->submitted.job_id, msg->submitted.is_new,
                              &out);
    else
        buf_printf(&out, "%llu\n", (unsigned long long)msg->submitted.job_id);
    if (screen_out(&ctl->screen, &out) != STATUS_OK)
        return CTL_FAILED;
    output_submitted(&submission->request, msg->submitted.job_id, true, ctl_server_shown(ctl),
                     &words);
    buf_add(&words, "", 1);
    if (!words.failed)
        screen_message(&ctl->screen, "%s", words.bytes);
    buf_free(&words);
    return CTL_OK;
}

static int submit_only(struct ctl *ctl, struct submission *submission)
{
    struct msg msg = {.type = MSG_TYPE_SUBMIT, .submit = submission->request};
    struct request request = {.msg = &msg,
                              .patience_us = 10000000,
                              .answer = MSG_TYPE_SUBMITTED,
                              .on_answer = on_submitted,
                              .context = submission};

    return request_run(ctl, &request);
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

static void on_run_done(struct attach *attach)
{
    attach_show_end(attach);
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
        .patience_us = ctl->options.patience_us,
        .on_submitted = on_run_submitted,
        .on_done = on_run_done,
    };
    struct err err = {0};

    if (follow_ranks_parse(ctl->options.rank ? ctl->options.rank : "all", &options.follow, mask,
                           &err) != STATUS_OK)
        return ctl_fail_err(ctl, CTL_USAGE, &err, "");
    if (options.follow.ranks_failed)
        return ctl_fail(ctl, CTL_USAGE, "--rank failed: no rank has failed before the start",
                        "ddpctl logs knows it");
    if (ctl->options.standalone)
        return standalone_run(ctl, &options);
    return attach_run(ctl, &options);
}

/* --rank, before the job is there: a rank that it will not have is a mistake in the command. */
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
        return ctl_fail(ctl, CTL_USAGE, message,
                        "--rank (-r) says whose logs are shown; torchrun's -r is --redirects here");
    }
    return CTL_OK;
}

static int submit(struct ctl *ctl, bool follow)
{
    struct submission submission = {0};
    int rc = submission_make(&submission, ctl);

    if (rc == 0)
        rc = check_ranks(ctl, &submission);
    if (rc == 0 && submission.is_staged && !ctl->options.dry_run)
        rc = stage_send(ctl, &submission.packed);
    if (rc == 0 && ctl->options.dry_run)
        rc = print_request(ctl, &submission);
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
    if ((ctl->options.state_dir || ctl->options.bindir) && !ctl->options.standalone)
        return ctl_fail(ctl, CTL_USAGE, "--state-dir and --bindir go with --standalone", "");
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
        .patience_us = ctl->options.patience_us,
        .on_done = on_run_done,
    };
    struct err err = {0};

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
    options.job = ctl->words[0];
    return attach_run(ctl, &options);
}
