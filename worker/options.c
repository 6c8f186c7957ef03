#include "worker/options.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_FLAG, KIND_U32, KIND_U64, KIND_FLOAT, KIND_DOUBLE, KIND_TEXT };

static const struct row {
    const char *name;
    const char *other_name; /* NULL: none */
    char letter;            /* 0: none */
    enum kind kind;
    size_t offset;
    double min, max; /* of numbers */
    const char *value;
    const char *help;
} rows[] = {
#define AT(member) offsetof(struct options, member)
    {"arch", NULL, 'a', KIND_TEXT, AT(arch), 0, 0, "ARCH",
     "convnet (default), toynet, resnet18, 34, 50, 101, 152"},
    {"epochs", NULL, 0, KIND_U32, AT(epochs), 1, 1e6, "N", "passes over the training set (10)"},
    {"batch-size", NULL, 'b', KIND_U32, AT(batch), 1, 65536, "N", "images per rank and step (100)"},
    {"lr", "learning-rate", 0, KIND_FLOAT, AT(lr), 0, 1e6, "X", "learning rate of SGD (0.01)"},
    {"momentum", NULL, 0, KIND_FLOAT, AT(momentum), 0, 1e6, "X", "momentum of SGD (0)"},
    {"dampening", NULL, 0, KIND_FLOAT, AT(dampening), -1e6, 1e6, "X",
     "dampening of the momentum (0)"},
    {"nesterov", NULL, 0, KIND_FLAG, AT(nesterov), 0, 0, NULL,
     "Nesterov's momentum; needs --momentum and no --dampening"},
    {"weight-decay", "wd", 0, KIND_FLOAT, AT(weight_decay), 0, 1e6, "X", "weight decay (0)"},
    {"label-smoothing", NULL, 0, KIND_FLOAT, AT(label_smoothing), 0, 1, "X",
     "of the training loss; validation has none (0)"},
    {"accumulation-steps", NULL, 0, KIND_U32, AT(accumulation_steps), 1, 65536, "N",
     "batches that make one step; one reduction each step (1)"},
    {"clip-grad-norm", NULL, 0, KIND_FLOAT, AT(clip_grad_norm), 0, 1e30, "X",
     "bring the norm of all gradients down to X (0: not)"},
    {"clip-grad-value", NULL, 0, KIND_FLOAT, AT(clip_grad_value), 0, 1e30, "X",
     "bring every gradient to within -X and X (0: not)"},
    {"predivide-factor", "gradient-predivide-factor", 0, KIND_FLOAT, AT(predivide), 0, 1e6, "X",
     "divide gradients by X before the reduction, by world / X after"},
    {"scale-lr", NULL, 0, KIND_FLAG, AT(scale_lr), 0, 0, NULL,
     "--lr is for 256 images a step: multiply it by batch * world / 256"},
    {"lr-schedule", NULL, 0, KIND_TEXT, AT(lr_schedule), 0, 0, "NAME",
     "constant (default), step, imagenet, cosine, onecycle or plateau"},
    {"lr-step-epochs", NULL, 0, KIND_U32, AT(schedule.step_epochs), 1, 1e6, "N",
     "step: epochs between two drops (30)"},
    {"lr-gamma", NULL, 0, KIND_DOUBLE, AT(schedule.gamma), 0, 1, "X",
     "step, plateau: factor of a drop (0.1)"},
    {"min-lr", NULL, 0, KIND_DOUBLE, AT(schedule.min_lr), 0, 1e6, "X",
     "cosine, plateau: the lowest rate (0)"},
    {"warmup-epochs", NULL, 0, KIND_U32, AT(schedule.warmup_epochs), 0, 1e6, "N",
     "linear warm-up: lr * (epoch + 1) / N (0)"},
    {"warmup-from-zero", NULL, 0, KIND_FLAG, AT(schedule.warmup_from_zero), 0, 0, NULL,
     "lr * epoch / N: epoch 0 trains at rate 0, as LambdaLR(epoch / N) does"},
    {"imagenet-as-apex", NULL, 0, KIND_FLAG, AT(schedule.imagenet_as_apex), 0, 0, NULL,
     "imagenet: its warm-up one step ahead, as in Apex's example"},
    {"onecycle-div", NULL, 0, KIND_DOUBLE, AT(schedule.div_factor), 1, 1e12, "X",
     "onecycle: --lr is the maximum, it begins at lr / X (25)"},
    {"onecycle-final-div", NULL, 0, KIND_DOUBLE, AT(schedule.final_div_factor), 1, 1e12, "X",
     "onecycle: it ends at the beginning's rate / X (10000)"},
    {"onecycle-pct-start", NULL, 0, KIND_DOUBLE, AT(schedule.pct_start), 0, 1, "X",
     "onecycle: the part of all steps in which it rises (0.3)"},
    {"onecycle-three-phase", NULL, 0, KIND_FLAG, AT(schedule.three_phase), 0, 0, NULL,
     "onecycle: down again as it rose, then to the end"},
    {"onecycle-keep-momentum", NULL, 0, KIND_FLAG, AT(keep_momentum), 0, 0, NULL,
     "onecycle: leave --momentum alone; else it goes 0.95, 0.85, 0.95"},
    {"plateau-metric", NULL, 0, KIND_TEXT, AT(plateau_metric), 0, 0, "NAME",
     "plateau: val_loss (default), val_acc1 or val_acc5; greater accuracy is better"},
    {"plateau-patience", NULL, 0, KIND_U32, AT(schedule.patience), 0, 1e6, "N",
     "plateau: epochs without improvement that are let pass (10)"},
    {"plateau-cooldown", NULL, 0, KIND_U32, AT(schedule.cooldown), 0, 1e6, "N",
     "plateau: epochs after a drop that do not count (0)"},
    {"plateau-threshold", NULL, 0, KIND_DOUBLE, AT(schedule.threshold), 0, 1e6, "X",
     "plateau: what counts as improvement, relative (0.0001)"},
    {"plateau-threshold-absolute", NULL, 0, KIND_FLAG, AT(schedule.threshold_absolute), 0, 0, NULL,
     "plateau: ... or absolute"},
    {"early-stop", NULL, 0, KIND_TEXT, AT(early_stop_metric), 0, 0, "METRIC",
     "end when val_loss, val_acc1 or val_acc5 no longer improves"},
    {"early-stop-patience", NULL, 0, KIND_U32, AT(early_stop_patience), 1, 1e6, "N",
     "epochs without improvement until then (100)"},
    {"early-stop-delta", NULL, 0, KIND_DOUBLE, AT(early_stop_delta), 0, 1e6, "X",
     "what counts as improvement (0: a tie does)"},
    {"seed", NULL, 0, KIND_U64, AT(seed), 0, 0, "N",
     "of the initial weights and of the order (0): those of PyTorch"},
    {"workers", NULL, 'j', KIND_U32, AT(loader_threads), 0, 1024, "N",
     "0: gather batches between the steps; else beside them (1)"},
    {"print-freq", NULL, 'p', KIND_U32, AT(print_freq), 1, 1e9, "N",
     "steps between progress lines (100)"},
    {"max-steps", NULL, 0, KIND_U32, AT(max_steps), 0, 99999999, "N",
     "stop after this many steps in all (0: after the epochs)"},
    {"resume", NULL, 0, KIND_TEXT, AT(resume), 0, 0, "WHAT",
     "auto: the newest in --checkpoint-dir; none; a file or a folder"},
    {"evaluate", NULL, 'e', KIND_FLAG, AT(evaluate), 0, 0, NULL, "validate and end"},
    {"dummy", NULL, 0, KIND_FLAG, AT(dummy), 0, 0, NULL,
     "random images in place of data, to measure speed"},
    {"image-size", NULL, 0, KIND_U32, AT(image_size), 1, 4096, "PIXELS",
     "of --dummy (28; 224 for a resnet)"},
    {"num-classes", NULL, 0, KIND_U32, AT(class_count), 2, 65536, "N",
     "of --dummy (10; 1000 for a resnet)"},
    {"sync-bn", NULL, 0, KIND_FLAG, AT(sync_bn), 0, 0, NULL,
     "batch norms take their statistics over all ranks"},
    {"channels-last", NULL, 0, KIND_FLAG, AT(channels_last), 0, 0, NULL,
     "accepted: layouts here are always those that are fastest"},
    {"device", NULL, 0, KIND_TEXT, AT(device), 0, 0, "NAME", "auto (default), cpu or cuda"},
    {"opt-level", NULL, 0, KIND_TEXT, AT(opt_level), 0, 0, "LEVEL",
     "mixed precision as Apex's: O0 (default, fp32), O1, O2 or O3"},
    {"low-type", NULL, 0, KIND_TEXT, AT(low_type), 0, 0, "TYPE",
     "what O1 to O3 compute in: fp16 (default) or bf16"},
    {"keep-batchnorm-fp32", NULL, 0, KIND_TEXT, AT(keep_batchnorm_fp32), 0, 0, "BOOL",
     "True or False, against the level's own (O2 True, O3 False)"},
    {"loss-scale", NULL, 0, KIND_TEXT, AT(loss_scale), 0, 0, "X",
     "dynamic (O1 and O2 with fp16) or a number (else 1.0)"},
    {"init-loss-scale", NULL, 0, KIND_FLOAT, AT(init_loss_scale), 0, 1e30, "X",
     "what a dynamic scale begins with (65536)"},
    {"min-loss-scale", NULL, 0, KIND_FLOAT, AT(min_loss_scale), 0, 1e30, "X",
     "a dynamic scale goes no lower (6.1e-05, 2^-14)"},
    {"max-loss-scale", NULL, 0, KIND_FLOAT, AT(max_loss_scale), 0, 1e30, "X",
     "nor higher (16777216, 2^24)"},
    {"max-skipped-steps", NULL, 0, KIND_U32, AT(max_skipped_steps), 1, 1e6, "N",
     "stop after so many overflows in a row (50)"},
    {"allreduce-always-fp32", NULL, 0, KIND_FLAG, AT(allreduce_always_fp32), 0, 0, NULL,
     "reduce fp16 and bf16 gradients in fp32"},
    {"print-graph", NULL, 0, KIND_FLAG, AT(print_graph), 0, 0, NULL,
     "print the graph after each pass, and end"},
    {"deterministic", NULL, 0, KIND_FLAG, AT(deterministic), 0, 0, NULL,
     "the same bits in every run, also where that is slower"},
    {"checkpoint-dir", NULL, 0, KIND_TEXT, AT(checkpoint_dir), 0, 0, "DIR",
     "write step-<8 digits>.safetensors and .json there, each epoch"},
    {"checkpoint-every", NULL, 0, KIND_U32, AT(checkpoint_every), 0, 99999999, "STEPS",
     "and every so many steps (0: not)"},
    {"checkpoint-keep", NULL, 0, KIND_U32, AT(checkpoint_keep), 1, 1e6, "N",
     "how many of the newest to keep (2)"},
    {"delay-allreduce", NULL, 0, KIND_FLAG, AT(delay_allreduce), 0, 0, NULL,
     "reduce gradients after backward, not beside it"},
    {"bucket-cap-mb", NULL, 0, KIND_FLOAT, AT(bucket_cap_mb), 0, 65536, "X",
     "MiB of a gradient bucket (25; the first has 1)"},
    {"loss-log", NULL, 0, KIND_TEXT, AT(loss_log), 0, 0, "FILE",
     "every rank's loss at every step: epoch, step, loss; %r: the rank"},
    {"help", NULL, 'h', KIND_FLAG, AT(help), 0, 0, NULL, "this text"},
    {"version", NULL, 0, KIND_FLAG, AT(version), 0, 0, NULL, "print the version"},
#undef AT
};
static const size_t row_count = sizeof rows / sizeof rows[0];

const char options_default_level[] = "O0";

static const char examples[] =
    "ddp-worker: trains an image classifier; one process is one rank.\n"
    "\n"
    "  ddp-worker                                     the ConvNet on built-in digits, one rank\n"
    "  ddp-worker --epochs 3 --lr 0.01 --momentum 0.9 ~/mnist\n"
    "  ddp-worker --checkpoint-dir ckpt --checkpoint-every 100 --resume auto ~/mnist\n"
    "  ddp-worker -e --resume ckpt ~/mnist            accuracy of the newest checkpoint\n"
    "  ddpctl run --standalone --nproc-per-node 4 -- ddp-worker ~/mnist\n"
    "\n"
    "usage: ddp-worker [options] [DATA]\n"
    "DATA: a folder with MNIST's IDX files, plain or .gz; \"digits\" or nothing: the built-in "
    "digits\n"
    "\n";

void options_print_help(FILE *out)
{
    (void)fputs(examples, out);
    for (size_t i = 0; i < row_count; i++) {
        char letter[8] = "    ", left[64];
        if (rows[i].letter != 0)
            (void)snprintf(letter, sizeof letter, "-%c, ", rows[i].letter);
        (void)snprintf(left, sizeof left, "%s--%s%s%s", letter, rows[i].name,
                       rows[i].value != NULL ? " " : "",
                       rows[i].value != NULL ? rows[i].value : "");
        (void)fprintf(out, "  %-30s %s\n", left, rows[i].help);
    }
}

/* -- a guess at what was meant -- */

static size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edits from a to b: insert, delete, change, or swap neighbours. Damerau 1964. Long texts are
 * nothing alike. */
static size_t edits(const char *a, const char *b)
{
    enum { LENGTH_MAX = 40 };
    size_t cost[LENGTH_MAX + 1][LENGTH_MAX + 1], n = strlen(a), m = strlen(b);

    if (n > LENGTH_MAX || m > LENGTH_MAX)
        return LENGTH_MAX;
    for (size_t i = 0; i <= n; i++) {
        for (size_t k = 0; k <= m; k++) {
            if (i == 0 || k == 0) {
                cost[i][k] = i + k;
                continue;
            }
            size_t change = cost[i - 1][k - 1] + (a[i - 1] != b[k - 1]);
            cost[i][k] = min_of(change, 1 + min_of(cost[i - 1][k], cost[i][k - 1]));
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                cost[i][k] = min_of(cost[i][k], cost[i - 2][k - 2] + 1);
        }
    }
    return cost[n][m];
}

/* The nearest name, if it is near; an unfinished name is near. */
static const char *guess(const char *name)
{
    size_t best = strlen(name) / 3 + 1;
    const char *found = NULL;

    for (size_t i = 0; i < row_count; i++) {
        bool begins = strlen(name) >= 3 && strncmp(rows[i].name, name, strlen(name)) == 0;
        size_t distance = begins ? 1 : edits(name, rows[i].name);
        if (distance < best + (found == NULL)) {
            best = distance;
            found = rows[i].name;
        }
    }
    return found;
}

static enum status unknown(const char *name, struct err *err)
{
    const char *near = guess(name);

    if (near == NULL)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "unknown option --%.60s; ddp-worker --help lists all", name);
    return err_set(err, STATUS_BAD_INPUT, 0, "unknown option --%.60s; did you mean --%s?", name,
                   near);
}

/* -- values -- */

static enum status bad_number(const struct row *row, const char *text, struct err *err)
{
    if (row->kind == KIND_U64)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--%s %.60s: expected a whole number from 0 to 2^64 - 1", row->name, text);
    return err_set(err, STATUS_BAD_INPUT, 0, "--%s %.60s: expected a %snumber from %.10g to %.10g",
                   row->name, text, row->kind == KIND_U32 ? "whole " : "", row->min, row->max);
}

static enum status store_whole(struct options *options, const struct row *row, const char *text,
                               struct err *err)
{
    char *at = (char *)options + row->offset, *end = NULL;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0)
        return bad_number(row, text, err);
    if (row->kind == KIND_U64) {
        *(uint64_t *)(void *)at = value;
        return STATUS_OK;
    }
    if ((double)value < row->min || (double)value > row->max)
        return bad_number(row, text, err);
    *(uint32_t *)(void *)at = (uint32_t)value;
    return STATUS_OK;
}

static enum status store_float(struct options *options, const struct row *row, const char *text,
                               struct err *err)
{
    char *at = (char *)options + row->offset, *end = NULL;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value >= row->min && value <= row->max))
        return bad_number(row, text, err);
    if (row->kind == KIND_DOUBLE)
        *(double *)(void *)at = value;
    else
        *(float *)(void *)at = (float)value;
    return STATUS_OK;
}

static enum status store(struct options *options, const struct row *row, const char *text,
                         struct err *err)
{
    char *at = (char *)options + row->offset;

    switch (row->kind) {
    case KIND_FLAG:
        *(bool *)(void *)at = true;
        return STATUS_OK;
    case KIND_U32:
    case KIND_U64:
        return store_whole(options, row, text, err);
    case KIND_FLOAT:
    case KIND_DOUBLE:
        return store_float(options, row, text, err);
    case KIND_TEXT:
        if (*text == '\0')
            return err_set(err, STATUS_BAD_INPUT, 0, "--%s: the value is empty", row->name);
        *(const char **)(void *)at = text;
        return STATUS_OK;
    }
    return STATUS_OK;
}

/* -- the command line -- */

/* torchrun's habit: --batch_size is --batch-size. */
static bool same_name(const char *name, const char *typed, size_t n)
{
    if (name == NULL || strlen(name) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (name[i] != typed[i] && !(name[i] == '-' && typed[i] == '_'))
            return false;
    return true;
}

static const struct row *find_name(const char *typed, size_t n)
{
    for (size_t i = 0; i < row_count; i++)
        if (same_name(rows[i].name, typed, n) || same_name(rows[i].other_name, typed, n))
            return &rows[i];
    return NULL;
}

static const struct row *find_letter(char letter)
{
    for (size_t i = 0; i < row_count; i++)
        if (rows[i].letter == letter)
            return &rows[i];
    return NULL;
}

/* `inside`: the value that came in the same word, or NULL; then a value is taken from the next
 * word. */
static enum status take(struct options *options, const struct row *row, const char *inside,
                        int *index, int argc, char **argv, struct err *err)
{
    if (row->kind == KIND_FLAG) {
        if (inside != NULL)
            return err_set(err, STATUS_BAD_INPUT, 0, "--%s takes no value", row->name);
        return store(options, row, NULL, err);
    }
    if (inside == NULL) {
        if (*index + 1 >= argc)
            return err_set(err, STATUS_BAD_INPUT, 0, "--%s needs a value: --%s %s", row->name,
                           row->name, row->value);
        inside = argv[++*index];
    }
    return store(options, row, inside, err);
}

static enum status take_long(struct options *options, int *index, int argc, char **argv,
                             struct err *err)
{
    const char *name = argv[*index] + 2, *equals = strchr(name, '=');
    size_t n = equals != NULL ? (size_t)(equals - name) : strlen(name);
    const struct row *row = find_name(name, n);
    char typed[64];

    if (row != NULL)
        return take(options, row, equals != NULL ? equals + 1 : NULL, index, argc, argv, err);
    (void)snprintf(typed, sizeof typed, "%.*s", n < 60 ? (int)n : 60, name);
    return unknown(typed, err);
}

static enum status take_short(struct options *options, int *index, int argc, char **argv,
                              struct err *err)
{
    const char *word = argv[*index];
    const struct row *row = find_letter(word[1]);

    if (row == NULL)
        return strlen(word) > 2
                   ? unknown(word + 1, err)
                   : err_set(err, STATUS_BAD_INPUT, 0,
                             "unknown option %.60s; ddp-worker --help lists all", word);
    return take(options, row, word[2] != '\0' ? word + 2 + (word[2] == '=') : NULL, index, argc,
                argv, err);
}

static enum status take_data(struct options *options, const char *word, struct err *err)
{
    if (options->data != NULL)
        return err_set(err, STATUS_BAD_INPUT, 0, "one DATA folder at most: %.80s or %.80s?",
                       options->data, word);
    options->data = word;
    return STATUS_OK;
}

static enum status take_words(struct options *options, int argc, char **argv, struct err *err)
{
    bool words_only = false;
    enum status status = STATUS_OK;

    for (int i = 1; i < argc && status == STATUS_OK; i++) {
        if (!words_only && strcmp(argv[i], "--") == 0)
            words_only = true;
        else if (!words_only && strncmp(argv[i], "--", 2) == 0)
            status = take_long(options, &i, argc, argv, err);
        else if (!words_only && argv[i][0] == '-' && argv[i][1] != '\0')
            status = take_short(options, &i, argc, argv, err);
        else
            status = take_data(options, argv[i], err);
    }
    return status;
}

/* -- what goes together -- */

struct amp_request options_amp(const struct options *options)
{
    return (struct amp_request){
        .level = options->opt_level,
        .low_type = options->low_type,
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
    if (strcmp(options->device, "auto") == 0 || strcmp(options->device, "cpu") == 0)
        return STATUS_OK;
    if (strncmp(options->device, "cuda", 4) == 0)
        return err_set(
            err, STATUS_UNSUPPORTED, 0,
            "--device %.40s: this build has no CUDA training backend yet; use --device cpu",
            options->device);
    return err_set(err, STATUS_BAD_INPUT, 0, "--device %.40s: expected auto, cpu or cuda",
                   options->device);
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
    int kind = schedule_kind_named(options->lr_schedule);
    int metric = options_metric_named(options->plateau_metric);

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
    options->schedule.plateau_max = metric != METRIC_VAL_LOSS;
    options->schedule.cycle_momentum = !options->keep_momentum;
    options->schedule.epochs = options->epochs;
    if (kind == SCHEDULE_ONECYCLE)
        return STATUS_OK; /* how many steps there are is known with the data */
    return schedule_check(&options->schedule, err);
}

static enum status check(struct options *options, struct err *err)
{
    enum status status = check_precision(options, err);

    if (status == STATUS_OK)
        status = check_device(options, err);
    if (status == STATUS_OK)
        status = check_schedule(options, err);
    if (status != STATUS_OK)
        return status;
    if (options->nesterov && (options->momentum <= 0 || options->dampening != 0))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--nesterov requires a --momentum and zero --dampening"); /* torch's words */
    if (options->checkpoint_dir == NULL && options->checkpoint_every > 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "--checkpoint-every needs --checkpoint-dir DIR");
    if (options->checkpoint_dir == NULL && options->resume != NULL &&
        strcmp(options->resume, "auto") == 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "--resume auto needs --checkpoint-dir DIR");
    if (options->dummy && options->data != NULL)
        return err_set(err, STATUS_BAD_INPUT, 0, "--dummy makes its own images: leave %.80s out",
                       options->data);
    if (options->data != NULL && strcmp(options->data, "digits") == 0)
        options->data = NULL;
    return STATUS_OK;
}

enum status options_parse(struct options *options, int argc, char **argv, struct err *err)
{
    enum status status;

    *options = (struct options){
        .arch = "convnet",
        .epochs = 10,
        .batch = 100,
        .accumulation_steps = 1,
        .lr = 0.01F,
        .loader_threads = 1,
        .print_freq = 100,
        .device = "auto",
        .opt_level = options_default_level,
        .max_skipped_steps = AMP_SKIPS_MAX,
        .checkpoint_keep = 2,
        .lr_schedule = "constant",
        .plateau_metric = "val_loss",
        .early_stop_patience = 100,
    };
    schedule_defaults(&options->schedule);
    status = take_words(options, argc, argv, err);
    if (status != STATUS_OK || options->help || options->version)
        return status;
    return check(options, err);
}
