/* The data of a training: its sets, and which images this rank sees. */
#include "worker/train/internal.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "worker/data/cifar.h"
#include "worker/data/dataset.h"
#include "worker/data/digits.h"
#include "worker/data/folder.h"
#include "worker/data/idx.h"
#include "worker/data/padded.h"
#include "worker/data/shards/shards.h"

enum { DUMMY_TRAIN = 60000, DUMMY_VALIDATION = 10000, DUMMY_BYTES = 256 << 20 };
enum { PADDING = 4, PICTURE_THREADS = 4 };

/* -- kinds of data -- */

/* Opens the training or validation set of `dir`. */
typedef enum status (*open_set)(struct train *train, const char *dir, bool is_training,
                                struct source **set, struct err *err);

/* A kind of DATA. The first kind in the table whose files exist is used. */
struct data_kind {
    const char *name; /* in checkpoints: never changed */
    bool (*is_in)(const char *dir);
    open_set open;
    bool has_pictures; /* normalised as ImageNet's, cropped at random, read by several threads */
    const char *files;
};

static enum status open_idx(struct train *train, const char *dir, bool is_training,
                            struct source **set, struct err *err)
{
    struct idx_unused unused = {0};
    const enum status status = idx_read(set, dir, is_training ? "train" : "t10k", &unused, err);

    if (status == STATUS_OK && is_training && unused.count > 0 && train->place->rank == 0)
        log_line(LOG_WARNING, train_log_about(train),
                 "%s: the labels say that there are %u classes; class %u%s no training image", dir,
                 (*set)->shape.classes, unused.first,
                 unused.count > 1 ? " and others have" : " has");
    return status;
}

static bool has_folder(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct stat now;
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);

    return n > 0 && (size_t)n < sizeof path && stat(path, &now) == 0 && S_ISDIR(now.st_mode);
}

static bool folder_is_in(const char *dir)
{
    return has_folder(dir, "train") || has_folder(dir, "val");
}

/* Folders that are no classes, and those that could not be listed. */
static enum status tell_problems(const struct train *train, const struct folder_list *list,
                                 const char *path, struct err *err)
{
    if (list->hidden_count > 0 && train->place->rank == 0)
        log_line(LOG_WARNING, train_log_about(train),
                 "%s: hidden folders are no classes: %s%s left out", path, list->hidden,
                 list->hidden_count > 1 ? " and others are" : " is");
    for (uint32_t i = 0; i < list->problem_count && i < FOLDER_PROBLEMS; i++) {
        if (train->options->images.strict)
            return err_set(err, list->problems[i].status, list->problems[i].code, "%s (--strict)",
                           list->problems[i].text);
        log_line(LOG_WARNING, train_log_about(train), "%s", list->problems[i].text);
    }
    if (list->problem_count > FOLDER_PROBLEMS)
        log_line(LOG_WARNING, train_log_about(train), "%u folders in all were left out",
                 list->problem_count);
    return STATUS_OK;
}

static enum status open_folder(struct train *train, const char *dir, bool is_training,
                               struct source **set, struct err *err)
{
    struct folder_options options = {.seed = train->options->seed,
                                     .allow_empty = train->options->images.allow_empty};
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", dir, is_training ? "train" : "val");
    enum status status = train_data_rules(train, is_training, &options.rules, err);

    if (status != STATUS_OK)
        return status;
    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(err, STATUS_TOO_BIG, 0, "%.100s...: the path is too long", dir);
    status = folder_open(set, path, &options, err);
    return status == STATUS_OK ? tell_problems(train, folder_list_of(*set), path, err) : status;
}

static enum status open_cifar(struct train *train, const char *dir, bool is_training,
                              struct source **set, struct err *err)
{
    (void)train;
    return cifar_read(set, dir, is_training, err);
}

static const struct data_kind kinds[] = {
    {"idx", idx_is_in, open_idx, false, "MNIST's IDX files (train-images-idx3-ubyte[.gz], ...)"},
    {"cifar10", cifar_is_there, open_cifar, false, "CIFAR-10's data_batch_1.bin, ..."},
    {"shards", train_shards_are_in, train_shards_open, true, "train*.tar and val*.tar"},
    {"folder", folder_is_in, open_folder, true, "folders train/ and val/ with a folder each class"},
};

static enum status find_kind(const char *dir, const struct data_kind **kind, struct err *err)
{
    char looked_for[240] = "";
    struct stat now;

    const bool is_pattern = shard_list_is_pattern(dir);

    if (!is_pattern && stat(dir, &now) != 0)
        return err_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, errno,
                       "there is no folder %.160s: %s", dir, strerror(errno));
    if (!is_pattern && !S_ISDIR(now.st_mode))
        return err_set(err, STATUS_BAD_INPUT, ENOTDIR, "%.160s is not a folder", dir);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const size_t used = strlen(looked_for);

        *kind = &kinds[i];
        if (kinds[i].is_in(dir))
            return STATUS_OK;
        (void)snprintf(looked_for + used, sizeof looked_for - used, "%s%s", i > 0 ? ", " : "",
                       kinds[i].files);
    }
    return err_set(err, STATUS_NOT_FOUND, ENOENT, "%.80s: no data in it; looked for: %s", dir,
                   looked_for);
}

/* -- opening -- */

/* Drawn images are kept in memory, so large ones are fewer. */
static size_t dummy_count(const struct dataset_shape *shape, size_t usual)
{
    const size_t room = DUMMY_BYTES / ((size_t)shape->channels * shape->height * shape->width);

    return room < usual ? room : usual;
}

static enum status open_dummy(struct train *train, struct err *err)
{
    const struct dataset_shape shape = train_model_dummy(train);
    enum status status =
        dataset_new_drawn(&train->train_set, &shape, dummy_count(&shape, DUMMY_TRAIN),
                          dataset_draw_noise, train->options->seed, err);

    if (status == STATUS_OK)
        status =
            dataset_new_drawn(&train->validation_set, &shape, dummy_count(&shape, DUMMY_VALIDATION),
                              dataset_draw_noise, ~train->options->seed, err);
    return status;
}

static enum status open_digits(struct train *train, struct err *err)
{
    enum status status = digits_new_train(&train->train_set, err);

    return status == STATUS_OK ? digits_new_validation(&train->validation_set, err) : status;
}

static enum status open_kind(struct train *train, const struct data_kind *kind, struct err *err)
{
    const char *dir = train->options->data;
    enum status status = STATUS_OK;

    train->data_kind = kind->name;
    train->has_pictures = kind->has_pictures;
    if (!train->options->evaluate)
        status = kind->open(train, dir, true, &train->train_set, err);
    if (status == STATUS_OK)
        status = kind->open(train, dir, false, &train->validation_set, err);
    return status;
}

/* Of a byte / 255. Pictures are usually normalised as ImageNet's, other images not at all. */
static enum status find_normal(struct train *train, struct err *err)
{
    static const struct net_normal none = {.std = {1, 1, 1, 1}};
    static const struct net_normal imagenet = {{0.485F, 0.456F, 0.406F, 0},
                                               {0.229F, 0.224F, 0.225F, 1}};
    const struct options_images *images = &train->options->images;
    const uint32_t channels = train->validation_set->shape.channels;

    train->normal = train->has_pictures ? imagenet : none;
    if (images->mean_count == 0)
        return STATUS_OK;
    if (channels > NET_NORMAL_CHANNELS || images->mean_count > channels ||
        images->std_count > channels)
        return err_set(
            err, STATUS_BAD_INPUT, 0,
            "--mean and --std: the images have %u channel%s, give so many numbers or one", channels,
            channels == 1 ? "" : "s");
    for (uint32_t c = 0; c < NET_NORMAL_CHANNELS; c++) {
        const uint32_t from = c < OPTIONS_COLOURS ? c : 0;

        train->normal.mean[c] = images->mean[from];
        train->normal.std[c] = images->std[from];
    }
    return STATUS_OK;
}

/* Wraps the set for random crops of images that already have one size. */
static enum status pad(struct train *train, struct err *err)
{
    const enum options_augment augment = train->options->images.augment;
    struct source *inner = train->train_set;

    if (augment == AUGMENT_IMAGENET && !train->has_pictures)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--augment imagenet is for pictures; --augment cifar is for images that "
                       "have one size");
    if (augment != AUGMENT_CIFAR || inner == NULL)
        return STATUS_OK;
    train->train_set = NULL; /* owned by what comes */
    return padded_new(&train->train_set, inner, PADDING, train->options->seed, err);
}

enum status train_data_open(struct train *train, struct err *err)
{
    const struct options *options = train->options;
    const struct data_kind *kind = NULL;
    enum status status;

    train->data_kind = options->dummy ? "dummy" : "digits";
    if (options->dummy)
        status = open_dummy(train, err);
    else if (options->data == NULL)
        status = open_digits(train, err);
    else
        status = find_kind(options->data, &kind, err);
    if (status == STATUS_OK && kind != NULL)
        status = open_kind(train, kind, err);
    if (status == STATUS_OK)
        status = train_cache_open(train, err);
    if (status == STATUS_OK)
        status = find_normal(train, err);
    return status == STATUS_OK ? pad(train, err) : status;
}

uint32_t train_data_threads(const struct train *train)
{
    const uint32_t asked = train->options->loader_threads;

    if (asked != OPTIONS_USUAL_THREADS)
        return asked;
    return train->has_pictures ? PICTURE_THREADS : 1;
}

uint32_t train_data_classes(const struct train *train)
{
    const uint32_t found = train->validation_set->shape.classes,
                   asked = train->options->class_count;

    return asked > found ? asked : found;
}

/* -- sharing -- */

/* A checkpoint's file name has eight digits for the step. */
static enum status check_steps(const struct train *train, struct err *err)
{
    const struct options *options = train->options;
    const uint64_t steps = (uint64_t)options->epochs * train->steps_per_epoch;

    if (options->evaluate || steps <= CHECKPOINT_STEP_MAX ||
        (options->max_steps > 0 && options->max_steps <= CHECKPOINT_STEP_MAX))
        return STATUS_OK;
    return err_set(err, STATUS_TOO_BIG, 0,
                   "--epochs %u of %u steps are %" PRIu64
                   " steps, at most %u can be counted: fewer epochs, or --max-steps",
                   options->epochs, train->steps_per_epoch, steps, CHECKPOINT_STEP_MAX);
}

/* Both sets must have the same classes in the same order, so that labels mean the same. */
static enum status check_classes(const struct source *a, const struct source *b, struct err *err)
{
    const uint32_t count =
        a->shape.classes < b->shape.classes ? a->shape.classes : b->shape.classes;

    if (a->class_names == NULL || b->class_names == NULL)
        return STATUS_OK;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(a->class_names[i], b->class_names[i]) != 0)
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "class %u is \"%.60s\" in the training set, \"%.60s\" in the validation "
                           "set: both need the same classes",
                           i, a->class_names[i], b->class_names[i]);
    if (a->shape.classes == b->shape.classes)
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "the training set has %u classes, the validation set %u: both need the same",
                   a->shape.classes, b->shape.classes);
}

static enum status check_sets(struct train *train, struct err *err)
{
    const struct source *validation = train->validation_set, *set = train->train_set;
    const struct dataset_shape *a, *b = &validation->shape;
    const uint32_t asked = train->options->class_count;

    if (!train->options->dummy && asked > 0 && asked < b->classes)
        return err_set(err, STATUS_BAD_INPUT, 0, "--num-classes %u: the data has %u classes", asked,
                       b->classes);
    if (set == NULL)
        return STATUS_OK;
    a = &set->shape;
    if (a->height != b->height || a->width != b->width || a->channels != b->channels)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: training images are %u x %u pixels, validation images %u x %u",
                       train->options->data, a->width, a->height, b->width, b->height);
    return check_classes(set, validation, err);
}

static enum status share_training(struct train *train, struct err *err)
{
    const struct sampler_options options = {
        .image_count = train->train_set != NULL ? train->train_set->count : 1,
        .rank = train->place->rank,
        .world = train->place->world,
        .seed = train->options->seed,
        .shuffle = true,
        .contiguous = train->shards != NULL,
        .make_order = train->shards != NULL ? train_shards_order : NULL,
        .user = train,
    };
    enum status status = sampler_init(&train->sampler, &options, err);

    if (status != STATUS_OK)
        return status;
    train->indices = calloc(train->sampler.count, sizeof *train->indices);
    if (train->indices == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for an epoch's order");
    train->steps_per_epoch = (uint32_t)((train->sampler.count + train_group_images(train) - 1) /
                                        train_group_images(train));
    train->epoch_steps = train->steps_per_epoch;
    assert(train->steps_per_epoch > 0);
    return check_steps(train, err);
}

/* Each validation image is on exactly one rank. */
static enum status share_validation(struct train *train, struct err *err)
{
    size_t count = train->validation_set->count;

    train->validation_indices =
        calloc(count / train->place->world + 1, sizeof *train->validation_indices);
    if (train->validation_indices == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the validation's order");
    for (size_t i = train->place->rank; i < count; i += train->place->world)
        train->validation_indices[train->validation_count++] = (int64_t)i;
    assert(train->validation_count <= count / train->place->world + 1);
    return STATUS_OK;
}

enum status train_data_share(struct train *train, struct err *err)
{
    enum status status = check_sets(train, err);

    if (status == STATUS_OK)
        status = share_training(train, err);
    return status == STATUS_OK ? share_validation(train, err) : status;
}
