#include "worker/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "common/option_docs.h"
#include "worker/device.h"
#include "worker/options_data.h"
#include "worker/options_foreign.h"
#include "worker/options_optim.h"
#include "worker/options_table.h"

const char options_default_level[] = "O0";

enum { TRACE_FROM = 11, TRACE_TO = 110 }; /* the first steps are slower than the others */

/* -- which options go together -- */

struct amp_request options_amp(const struct options *options)
{
    return (struct amp_request){
        .level = options->opt_level,
        .half_type = options->half_type,
        .keep_batchnorm_fp32 = options->keep_batchnorm_fp32,
        .loss_scale = options->loss_scale,
        .init_scale = options->init_loss_scale,
        .min_scale = options->min_loss_scale,
        .max_scale = options->max_loss_scale,
    };
}

static enum status check_precision(struct options *options, struct err *err)
{
    const struct amp_request request = options_amp(options);

    return amp_resolve(&options->amp, &request, err);
}

static enum status check_device(const struct options *options, struct err *err)
{
    if (!device_is_valid(options->device))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--device %.40s: expected auto, cpu, cuda or cuda:N", options->device);
    if (strcmp(options->comm, "auto") == 0 || strcmp(options->comm, "gloo") == 0 ||
        strcmp(options->comm, "nccl") == 0)
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT, 0, "--comm %.40s: expected auto, nccl or gloo",
                   options->comm);
}

int options_metric_named(const char *name)
{
    static const char *const names[] = {[METRIC_VAL_LOSS] = "val_loss",
                                        [METRIC_VAL_ACC1] = "val_acc1",
                                        [METRIC_VAL_ACC5] = "val_acc5"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return (int)i;
    return -1;
}

static enum status check_schedule(struct options *options, struct err *err)
{
    int kind = schedule_kind_named(options_schedule_name(options->lr_schedule));
    int metric = options_metric_named(options->plateau_metric);

    if (strcmp(options->lr_schedule, "exponentiallr") == 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--lr-schedule exponentiallr: use --lr-schedule step --lr-step-epochs 1 "
                       "--lr-gamma X");
    if (kind < 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--lr-schedule %.40s: expected constant, step, imagenet, cosine, onecycle "
                       "or plateau",
                       options->lr_schedule);
    if (metric < 0 || (options->early_stop_metric != NULL &&
                       options_metric_named(options->early_stop_metric) < 0))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--%s %.40s: expected val_loss, val_acc1 or val_acc5",
                       metric < 0 ? "plateau-metric" : "early-stop",
                       metric < 0 ? options->plateau_metric : options->early_stop_metric);
    options->schedule.kind = (enum schedule_kind)kind;
    options->lr_schedule = options_schedule_name(options->lr_schedule);
    options->schedule.plateau_max = metric != METRIC_VAL_LOSS;
    options->schedule.cycle_momentum = !options->keep_momentum;
    options->schedule.epochs = options->epochs;
    if (kind == SCHEDULE_ONECYCLE)
        return STATUS_OK; /* how many steps there are is known with the data */
    return schedule_check(&options->schedule, err);
}

static enum status check_copies(struct options *options, struct err *err)
{
    const char *text = options->checkpoint_copies_text;
    uint64_t copies = UINT32_MAX;
    enum status status = STATUS_OK;

    if (text != NULL && strcmp(text, "all") != 0)
        status =
            options_parse_number("--checkpoint-copies", text, 0, RANKS_PER_JOB_MAX, &copies, err);
    options->checkpoint_copies = (uint32_t)copies;
    if (status == STATUS_OK && text != NULL && options->checkpoint_dir == NULL)
        return err_set(err, STATUS_BAD_INPUT, 0, "--checkpoint-copies needs --checkpoint-dir DIR");
    return status;
}

static enum status check_fetch(const struct options *options, struct err *err)
{
    if (options->fetch == NULL && options->mirror != NULL)
        return err_set(err, STATUS_BAD_INPUT, 0, "--mirror needs --fetch WHAT");
    if (options->fetch != NULL && options->data == NULL)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--fetch %.80s: give the folder that it goes to: ddp-worker --fetch %.80s "
                       "DIR",
                       options->fetch, options->fetch);
    return STATUS_OK;
}

/* "11:110" */
static enum status read_trace_steps(struct options *options, struct err *err)
{
    const char *text = options->trace_steps;
    char *colon = NULL, *end = NULL;
    unsigned long from, to = 0;

    options->trace_from = TRACE_FROM;
    options->trace_to = TRACE_TO;
    if (text == NULL)
        return STATUS_OK;
    from = strtoul(text, &colon, 10);
    if (*colon == ':')
        to = strtoul(colon + 1, &end, 10);
    if (strspn(text, "0123456789:") != strlen(text) || end == NULL || end == colon + 1 ||
        *end != '\0' || from < 1 || from > to || to > UINT32_MAX - 1)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--trace-steps %.40s: expected A:B, steps counted from 1, as 11:110", text);
    options->trace_from = (uint32_t)from;
    options->trace_to = (uint32_t)to;
    return STATUS_OK;
}

/* What people look at. */
static enum status check_shown(struct options *options, struct err *err)
{
    if ((options->tb_histograms || options->tb_images > 0) && options->tensorboard == NULL)
        return err_set(err, STATUS_BAD_INPUT, 0, "--tb-%s needs --tensorboard DIR",
                       options->tb_histograms ? "histograms" : "images");
    if (options->trace_steps != NULL && options->trace == NULL)
        return err_set(err, STATUS_BAD_INPUT, 0, "--trace-steps needs --trace FILE");
    if (options->trace != NULL && options->profile_steps > 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--profile times steps in its own way: leave --trace out");
    return read_trace_steps(options, err);
}

static enum status check_parallel(const struct options *options, struct err *err)
{
    const uint32_t count = options->data_parallel;

    if (count == 0)
        return STATUS_OK;
    if (options->sync_bn)
        return err_set(
            err, STATUS_BAD_INPUT, 0,
            "--sync-bn: the replicas of --data-parallel have statistics of their own, as "
            "in PyTorch; with several ranks (ddpctl run --nproc-per-node %u) they share "
            "them",
            count);
    if (strncmp(options->device, "cuda:", 5) == 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--data-parallel %u takes GPUs 0 to %u: --device cuda (CUDA_VISIBLE_DEVICES "
                       "says which these are), or cpu",
                       count, count - 1);
    if (options->profile_steps > 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--profile times one device: leave --data-parallel out");
    if (options->batch < count)
        return err_set(
            err, STATUS_BAD_INPUT, 0,
            "--data-parallel %u: a batch of %u has no image for each: give -b %u or more", count,
            options->batch, count);
    return STATUS_OK;
}

static enum status check(struct options *options, struct err *err)
{
    enum status status = check_precision(options, err);

    if (status == STATUS_OK)
        status = check_device(options, err);
    if (status == STATUS_OK)
        status = check_schedule(options, err);
    if (status == STATUS_OK)
        status = options_check_optim(options, err);
    if (status == STATUS_OK)
        status = options_check_data(options, err);
    if (status == STATUS_OK)
        status = check_copies(options, err);
    if (status == STATUS_OK)
        status = check_fetch(options, err);
    if (status == STATUS_OK)
        status = check_shown(options, err);
    if (status == STATUS_OK)
        status = check_parallel(options, err);
    if (status != STATUS_OK)
        return status;
    if (options->checkpoint_dir == NULL && options->checkpoint_every > 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "--checkpoint-every needs --checkpoint-dir DIR");
    if (options->checkpoint_dir == NULL && options->resume != NULL &&
        (strcmp(options->resume, "auto") == 0 || strcmp(options->resume, "best") == 0))
        return err_set(err, STATUS_BAD_INPUT, 0, "--resume %s needs --checkpoint-dir DIR",
                       options->resume);
    if (options_metric_named(options->best_metric) < 0 && strcmp(options->best_metric, "none") != 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--best %.40s: expected val_loss, val_acc1, val_acc5 or none",
                       options->best_metric);
    if (options->new_classifier && options->pretrained == NULL)
        return err_set(
            err, STATUS_BAD_INPUT, 0,
            "--new-classifier says what to leave out of --pretrained FILE: there is none");
    if (options->profile_json != NULL && options->profile_steps == 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "--profile-json needs --profile N");
    if (options->profile_steps > 0 && (options->evaluate || options->checkpoint_dir != NULL))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--profile times training steps and saves nothing: leave --%s out",
                       options->evaluate ? "evaluate" : "checkpoint-dir");
    if (options->tune && options->deterministic)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--tune: with --deterministic the first engine is always taken and none is "
                       "timed: leave one of them out");
    if (options->tune && (options->evaluate || options->profile_steps > 0))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--tune times the engines of a training and ends: leave --%s out",
                       options->evaluate ? "evaluate" : "profile");
    if (options->dummy && options->data != NULL)
        return err_set(err, STATUS_BAD_INPUT, 0, "--dummy makes its own images: leave %.80s out",
                       options->data);
    if (options->data != NULL && strcmp(options->data, "digits") == 0)
        options->data = NULL;
    return STATUS_OK;
}

/* -- the command line -- */

static enum status take_data(struct options *options, const char *word, struct err *err)
{
    if (options->data != NULL)
        return err_set(err, STATUS_BAD_INPUT, 0, "one DATA folder at most: %.80s or %.80s?",
                       options->data, word);
    options->data = word;
    return STATUS_OK;
}

static enum status take_words(struct options *options, const struct option_result *result,
                              struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t i = 0; status == STATUS_OK && i < result->positional_count; i++)
        status = take_data(options, result->positionals[i], err);
    for (uint32_t i = 0; status == STATUS_OK && i < result->rest_count; i++)
        status = take_data(options, result->rest[i], err);
    return status;
}

static enum status read_words(struct options *options, int argc, char *const *argv, struct err *err)
{
    struct option_result result;
    enum status status = options_parse(&options_table, argc, argv, NULL, options, &result, err);

    for (size_t i = 0; status == STATUS_OK && i < options_table.row_count; i++)
        options->is_given[i] = result.sources[i] != OPTION_FROM_DEFAULT;
    options->help = result.wants_help;
    options->version = result.wants_version;
    return status == STATUS_OK && !options->help && !options->version
               ? take_words(options, &result, err)
               : status;
}

static enum status read_translated(struct options *options, int argc, char *const *argv,
                                   struct err *err)
{
    char **words = calloc(2 * (size_t)argc + 1, sizeof *words);
    int count = 0;
    enum status status;

    if (words == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the options");
    status = options_translate(argc, argv, words, &count, &options->foreign, err);
    if (status == STATUS_OK)
        status = read_words(options, count, words, err);
    free(words);
    return status;
}

enum status options_read(struct options *options, int argc, char *const *argv, struct err *err)
{
    enum status status;

    *options = (struct options){
        .arch = "convnet",
        .epochs = 10,
        .batch = 100,
        .accumulation_steps = 1,
        .lr = 0.01F,
        .optimizer = "sgd",
        .loader_threads = OPTIONS_USUAL_THREADS,
        .print_freq = 100,
        .fetch_timeout_s = 60,
        .images.shuffle_window = 10000,
        .device = "auto",
        .comm = "auto",
        .tune_seconds = -1,
        .opt_level = options_default_level,
        .max_skipped_steps = AMP_SKIPS_MAX,
        .checkpoint_keep = 2,
        .lr_schedule = "constant",
        .plateau_metric = "val_loss",
        .best_metric = "val_acc1",
        .early_stop_patience = 100,
    };
    schedule_defaults(&options->schedule);
    status = read_translated(options, argc, argv, err);
    return status != STATUS_OK || options->help || options->version ? status : check(options, err);
}

enum status options_rank_path(const char *option, const char *name, uint32_t rank,
                              char path[OPTIONS_PATH_BYTES], struct err *err)
{
    const char *mark = strstr(name, "%r");
    int bytes;

    if (mark == NULL)
        bytes = snprintf(path, OPTIONS_PATH_BYTES, "%s", name);
    else
        bytes = snprintf(path, OPTIONS_PATH_BYTES, "%.*s%u%s", (int)(mark - name), name, rank,
                         mark + 2);
    if (bytes < 0 || (size_t)bytes >= OPTIONS_PATH_BYTES)
        return err_set(err, STATUS_TOO_BIG, 0, "%s %.60s...: the path is over %u bytes", option,
                       name, OPTIONS_PATH_BYTES - 1);
    return STATUS_OK;
}

bool options_print_docs(FILE *out, int argc, char *const *argv)
{
    const struct option_docs docs = {.table = &options_table};
    enum option_form form;
    struct buf text = {0};

    if (!option_docs_asked(argc, argv, &form))
        return false;
    option_docs_write(&docs, form, &text);
    (void)fwrite(text.bytes, 1, text.byte_count, out);
    buf_free(&text);
    return true;
}

void options_print_help(FILE *out)
{
    struct buf text = {0};

    options_help(&options_table, &text);
    (void)fwrite(text.bytes, 1, text.byte_count, out);
    buf_free(&text);
}

void options_list_equal(const struct options *options, struct buf *out)
{
    for (size_t i = 0; i < options_table.row_count; i++) {
        const struct option_row *row = &options_table.rows[i];

        if (row->ranks == OPTION_RANKS_FREE)
            continue;
        buf_printf(out, "--%s", row->name);
        buf_add(out, "", 1);
        if (row->ranks == OPTION_RANKS_GIVEN)
            buf_add_text(out, options->is_given[i] ? "a value" : "none");
        else if (!options_value_text(row, options, out))
            buf_add_text(out, "none");
        buf_add(out, "", 1);
    }
}
