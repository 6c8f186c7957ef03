/* Sources: pytorch/examples imagenet/main.py; NVIDIA/apex examples/imagenet/main_amp.py; torchvision
 * references/classification/train.py. */
#include "worker/options_foreign.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum takes { TAKES_NONE, TAKES_ONE, TAKES_BOOL /* "True" or "False" may follow */ };

/* One of `ours`, `idle` and `use` is set. */
struct foreign {
    const char *name;
    enum takes takes;
    const char *ours;  /* the same under our name; "": the value is DATA */
    const char *idle;  /* left out; why that changes nothing */
    const char *use;   /* refused; what to use */
    const char *value; /* with idle: only this value is left out, others are refused with `use` */
};

static const char launcher[] = "the launcher starts and connects the ranks: ddpctl run --nodes M "
                               "--nproc-per-node N -- ddp-worker ...";
static const char launch[] = "it belongs before the program: ddpctl run --nodes M "
                             "--nproc-per-node N -- ddp-worker ...";
static const char amp[] = "use --opt-level O1 or O2, with --low-type bf16 for bf16";
static const char size[] =
    "use --image-size N, one size for training and validation, and --resize N";
static const char augment[] = "there is no such augmentation; --augment has those that there are";
static const char decay[] = "there is one --weight-decay, for all parameters";
static const char ema[] = "there is no average of the weights; --lookahead is the nearest";

static const struct foreign table[] = {
    {"multiprocessing-distributed", TAKES_NONE, .idle = launcher},
    {"dist-url", TAKES_ONE, .idle = launcher},
    {"rank", TAKES_ONE, .idle = launcher},
    {"local-rank", TAKES_ONE, .idle = launcher},
    {"b", TAKES_ONE, .ours = "--batch-size"}, /* in Apex's README */
    {"start-epoch", TAKES_ONE, .value = "0",
     .idle = "--resume goes on in the epoch of the checkpoint",
     .use = "--resume goes on in the epoch of the checkpoint: leave it out"},
    {"no-accel", TAKES_NONE, .ours = "--device=cpu"},
    {"no-cuda", TAKES_NONE, .ours = "--device=cpu"},
    {"channels-last", TAKES_BOOL, .ours = "--channels-last"},
    {"prof", TAKES_ONE, .ours = "--profile"},
    {"amp", TAKES_NONE, .use = amp},
    {"fp16", TAKES_NONE, .use = amp},
    {"bf16", TAKES_NONE, .use = amp},
    {"half", TAKES_NONE, .use = amp},
    {"static-loss-scale", TAKES_ONE, .ours = "--loss-scale"},
    {"dynamic-loss-scale", TAKES_NONE, .ours = "--loss-scale=dynamic"},
    {"nproc-per-node", TAKES_ONE, .use = launch},
    {"nnodes", TAKES_ONE, .use = launch},
    {"nodes", TAKES_ONE, .use = launch},
    {"node-rank", TAKES_ONE, .use = launch},
    {"standalone", TAKES_NONE, .use = launch},
    {"master-addr", TAKES_ONE, .use = launch},
    {"master-port", TAKES_ONE, .use = launch},
    {"rdzv-endpoint", TAKES_ONE, .use = launch},
    {"data-path", TAKES_ONE, .ours = ""},
    {"data-dir", TAKES_ONE, .ours = ""},
    {"data", TAKES_ONE, .ours = ""},
    {"model", TAKES_ONE, .ours = "--arch"},
    {"opt", TAKES_ONE, .ours = "--optimizer"},
    {"learning-rate-schedule", TAKES_ONE, .ours = "--lr-schedule"},
    {"lr-scheduler", TAKES_ONE, .ours = "--lr-schedule"},
    {"lr-step-size", TAKES_ONE, .ours = "--lr-step-epochs"},
    {"lr-min", TAKES_ONE, .ours = "--min-lr"},
    {"lr-warmup-epochs", TAKES_ONE, .value = "0", .idle = "there is no warm-up",
     .use = "use --warmup-epochs N: linear, from lr / N"},
    {"lr-warmup-method", TAKES_ONE, .use = "use --warmup-epochs N: linear, from lr / N"},
    {"lr-warmup-decay", TAKES_ONE, .use = "use --warmup-epochs N: linear, from lr / N"},
    {"output-dir", TAKES_ONE, .ours = "--checkpoint-dir"},
    {"test-only", TAKES_NONE, .ours = "--evaluate"},
    {"use-deterministic-algorithms", TAKES_NONE, .ours = "--deterministic"},
    {"val-resize-size", TAKES_ONE, .ours = "--resize"},
    {"val-crop-size", TAKES_ONE, .use = size},
    {"train-crop-size", TAKES_ONE, .use = size},
    {"weights", TAKES_ONE, .use = "use --pretrained FILE, with the weights that PyTorch has saved"},
    {"cache-dataset", TAKES_NONE, .use = "use --cache FILE: it keeps the decoded pictures"},
    {"backend", TAKES_ONE, .idle = "pictures are read as Pillow reads them"},
    {"use-v2", TAKES_NONE, .idle = "pictures are read as Pillow reads them"},
    {"interpolation", TAKES_ONE, .value = "bilinear", .idle = "that is what is always used",
     .use = "pictures are always resized bilinearly: leave it out"},
    {"auto-augment", TAKES_ONE, .use = augment},
    {"ra-magnitude", TAKES_ONE, .use = augment},
    {"augmix-severity", TAKES_ONE, .use = augment},
    {"random-erase", TAKES_ONE, .use = augment},
    {"mixup-alpha", TAKES_ONE, .use = augment},
    {"cutmix-alpha", TAKES_ONE, .use = augment},
    {"ra-sampler", TAKES_NONE, .use = augment},
    {"ra-reps", TAKES_ONE, .use = augment},
    {"norm-weight-decay", TAKES_ONE, .use = decay},
    {"bias-weight-decay", TAKES_ONE, .use = decay},
    {"transformer-embedding-decay", TAKES_ONE, .use = decay},
    {"model-ema", TAKES_NONE, .use = ema},
    {"model-ema-steps", TAKES_ONE, .use = ema},
    {"model-ema-decay", TAKES_ONE, .use = ema},
};

_Static_assert(sizeof table / sizeof table[0] <= 64, "a bit each");

struct translation {
    int argc, at;
    char *const *argv;
    char **into;
    int count;
    struct options_foreign *found;
    struct err *err;
};

static void put(struct translation *t, const char *text)
{
    union {
        const char *from;
        char *to; /* argv has no const */
    } word = {.from = text};

    t->into[t->count++] = word.to;
}

static bool is_named(const char *typed, size_t count, const char *name)
{
    if (strlen(name) != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if ((typed[i] == '_' ? '-' : typed[i]) != name[i])
            return false;
    return true;
}

static const struct foreign *find(const char *typed, size_t count)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (is_named(typed, count, table[i].name))
            return &table[i];
    return NULL;
}

static bool is_bool(const char *word)
{
    static const char *const words[] = {"true", "false", "1", "0", "yes", "no"};

    for (size_t i = 0; word != NULL && i < sizeof words / sizeof words[0]; i++)
        if (strcasecmp(word, words[i]) == 0)
            return true;
    return false;
}

/* The value after "=" or the next word; NULL: there is none. */
static const char *take_value(struct translation *t, const char *equals)
{
    const char *next = t->at < t->argc ? t->argv[t->at] : NULL;

    if (equals != NULL)
        return equals + 1;
    if (next == NULL || (next[0] == '-' && next[1] == '-'))
        return NULL;
    t->at++;
    return next;
}

static enum status translate(struct translation *t, const struct foreign *row, const char *equals)
{
    const char *value = NULL;

    if (row->takes == TAKES_ONE) {
        value = take_value(t, equals);
        if (value == NULL)
            return err_set(t->err, STATUS_BAD_INPUT, 0, "--%s needs a value", row->name);
    } else if (row->takes == TAKES_BOOL && equals == NULL && t->at < t->argc &&
               is_bool(t->argv[t->at])) {
        t->at++;
    }
    if (row->idle != NULL &&
        (row->value == NULL || (value != NULL && strcmp(row->value, value) == 0))) {
        t->found->left_out |= UINT64_C(1) << (row - table);
        return STATUS_OK;
    }
    if (row->use != NULL)
        return err_set(t->err, STATUS_BAD_INPUT, 0, "--%s: %s", row->name, row->use);
    if (row->ours[0] != '\0')
        put(t, row->ours);
    if (value != NULL)
        put(t, value);
    return STATUS_OK;
}

/* The example's flag; ours has a file. */
static enum status check_pretrained(const struct translation *t, const char *equals)
{
    const char *next = t->at < t->argc ? t->argv[t->at] : NULL;

    if (equals != NULL || (next != NULL && next[0] != '-'))
        return STATUS_OK;
    return err_set(t->err, STATUS_BAD_INPUT, 0,
                   "--pretrained needs the FILE of the weights, nothing is downloaded; in Python: "
                   "torch.save(torchvision.models.resnet50(weights=\"DEFAULT\").state_dict(), "
                   "\"resnet50.pth\")");
}

/* "nccl" is what auto takes between GPUs, and what a lone rank or one on a CPU cannot take. */
static enum status take_backend(struct translation *t, const char *equals)
{
    const char *value = take_value(t, equals);

    if (value == NULL)
        return err_set(t->err, STATUS_BAD_INPUT, 0, "--dist-backend needs a value: nccl or gloo");
    if (strcasecmp(value, "gloo") == 0)
        put(t, "--comm=gloo");
    else if (strcasecmp(value, "nccl") != 0)
        return err_set(
            t->err, STATUS_BAD_INPUT, 0,
            "--dist-backend %.40s: expected nccl or gloo; --comm auto takes nccl between "
            "GPUs, else gloo",
            value);
    return STATUS_OK;
}

/* The example counts machines in it, or ranks; -1 is its default. */
static enum status take_world(struct translation *t, const char *equals)
{
    const char *value = take_value(t, equals);
    uint64_t world = 0;
    enum status status = STATUS_OK;

    if (value == NULL || strcmp(value, "-1") != 0)
        status = options_parse_number("--world-size", value != NULL ? value : "", 1, UINT32_MAX,
                                      &world, t->err);
    t->found->world = (uint32_t)world;
    return status;
}

static enum status take_gpu(struct translation *t, const char *equals)
{
    static const char *const devices[] = {
        "cuda:0", "cuda:1", "cuda:2",  "cuda:3",  "cuda:4",  "cuda:5",  "cuda:6",  "cuda:7",
        "cuda:8", "cuda:9", "cuda:10", "cuda:11", "cuda:12", "cuda:13", "cuda:14", "cuda:15",
    };
    const char *value = take_value(t, equals);
    uint64_t index;
    const enum status status =
        options_parse_number("--gpu", value != NULL ? value : "", 0,
                             sizeof devices / sizeof devices[0] - 1, &index, t->err);

    if (status == STATUS_OK)
        t->found->gpu = devices[index];
    return status;
}

static enum status take(struct translation *t, const char *word)
{
    const char *name = word + 2, *equals = strchr(name, '=');
    const size_t count = equals != NULL ? (size_t)(equals - name) : strlen(name);
    const struct foreign *row = find(name, count);

    if (row != NULL)
        return translate(t, row, equals);
    if (is_named(name, count, "dist-backend"))
        return take_backend(t, equals);
    if (is_named(name, count, "world-size"))
        return take_world(t, equals);
    if (is_named(name, count, "gpu"))
        return take_gpu(t, equals);
    put(t, word);
    return is_named(name, count, "pretrained") ? check_pretrained(t, equals) : STATUS_OK;
}

enum status options_translate(int argc, char *const *argv, char **into, int *count,
                              struct options_foreign *found, struct err *err)
{
    struct translation t = {
        .argc = argc, .at = 1, .argv = argv, .into = into, .found = found, .err = err};
    enum status status = STATUS_OK;

    *found = (struct options_foreign){0};
    if (argc > 0)
        put(&t, argv[0]);
    while (status == STATUS_OK && t.at < argc) {
        const char *word = argv[t.at++];

        if (strcmp(word, "--") == 0) {
            for (put(&t, word); t.at < argc; t.at++)
                put(&t, argv[t.at]);
        } else if (word[0] == '-' && word[1] == '-') {
            status = take(&t, word);
        } else {
            put(&t, word);
        }
    }
    *count = t.count;
    into[t.count] = NULL;
    assert(t.count <= 2 * argc);
    return status;
}

const char *options_schedule_name(const char *name)
{
    if (strcmp(name, "steplr") == 0)
        return "step";
    return strcmp(name, "cosineannealinglr") == 0 ? "cosine" : name;
}

/* -- what they say here -- */

enum status options_take_world(struct options *options, uint32_t world, struct err *err)
{
    const struct options_foreign *foreign = &options->foreign;

    if (foreign->world > 1 && world == 1)
        return err_set(
            err, STATUS_BAD_INPUT, 0,
            "--world-size %u: this process is alone; ddpctl run starts all ranks: ddpctl "
            "run --nodes M --nproc-per-node N -- ddp-worker ...",
            foreign->world);
    if (foreign->gpu != NULL && world == 1 && strcmp(options->device, "auto") == 0)
        options->device = foreign->gpu;
    return STATUS_OK;
}

static bool is_left_out(const struct options *options, uint32_t row)
{
    return (options->foreign.left_out >> row & 1) != 0;
}

static bool was_said(const struct options *options, uint32_t row)
{
    for (uint32_t i = 0; i < row; i++)
        if (is_left_out(options, i) && table[i].idle == table[row].idle)
            return true;
    return false;
}

/* All options with the same reason, in one sentence. */
static void say(const struct options *options, uint32_t row, char text[OPTIONS_IDLE_BYTES])
{
    const uint32_t count = sizeof table / sizeof table[0];
    size_t used = 0;
    uint32_t said = 0;

    for (uint32_t i = row; i < count; i++) {
        if (!is_left_out(options, i) || table[i].idle != table[row].idle)
            continue;
        used += (size_t)snprintf(text + used, OPTIONS_IDLE_BYTES - used, "%s--%s",
                                 said++ > 0 ? ", " : "", table[i].name);
        assert(used < OPTIONS_IDLE_BYTES);
    }
    (void)snprintf(text + used, OPTIONS_IDLE_BYTES - used, " %s no effect here: %s",
                   said > 1 ? "have" : "has", table[row].idle);
}

bool options_next_foreign(const struct options *options, uint32_t world, uint32_t *at,
                          char text[OPTIONS_IDLE_BYTES])
{
    const uint32_t count = sizeof table / sizeof table[0];

    while (*at < count) {
        const uint32_t row = (*at)++;

        if (!is_left_out(options, row) || was_said(options, row) ||
            (table[row].idle == launcher && world > 1))
            continue;
        say(options, row, text);
        return true;
    }
    if (*at > count || options->foreign.gpu == NULL || options->device == options->foreign.gpu)
        return false;
    ++*at;
    (void)snprintf(text, OPTIONS_IDLE_BYTES, "--gpu has no effect here: %s",
                   world > 1 ? "the launcher gives each rank its GPU" : "--device says where");
    return true;
}
