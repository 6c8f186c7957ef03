/* From a checkpoint into the net. Rank 0 alone reads files, and sends the other ranks what they need.
 * snapshot.c and save.c have the way back. */
#include "worker/net/state.h"
#include "worker/train/internal.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "worker/model/pretrained.h"

void train_load_scaler(struct train *train)
{
    struct scaler scaler;

    if (!train->is_resumed || train->options->evaluate)
        return;
    scaler = net_scaler(train->net);
    scaler.applied = train->state.applied;
    scaler.unskipped = train->state.unskipped;
    scaler.skipped_in_a_row = train->state.skipped_in_a_row;
    if (train->options->amp.scaler.is_dynamic)
        scaler.scale = train->state.loss_scale;
    net_scaler_write(train->net, &scaler);
}

/* -- into the net -- */

static enum status write_state(struct net *net, int state, uint32_t index, const float *values,
                               struct err *err)
{
    return state == TRAIN_PARAMETER
               ? net_tensor_write(net, index, values, err)
               : net_optim_write(net, (enum optim_state)state, index, values, err);
}

static bool same_shape(const struct safetensors_tensor *there, const struct net_tensor *here)
{
    if (there->type != SAFETENSORS_F32 || there->dim_count != here->dim_count)
        return false;
    for (uint32_t i = 0; i < here->dim_count; i++)
        if (there->dims[i] != here->dims[i])
            return false;
    return true;
}

static enum status load_tensor(struct net *net, uint32_t index, const struct safetensors *file,
                               int state, struct err *err)
{
    const struct net_tensor *tensor = net_tensor(net, index);
    const struct safetensors_tensor *found;
    char name[SAFETENSORS_NAME_BYTES_MAX + 1], prefix[TRAIN_PREFIX_BYTES];
    float *values;
    enum status status;

    (void)snprintf(name, sizeof name, "%s%s", train_tensor_prefix(state, prefix), tensor->name);
    found = safetensors_find(file, name);
    if (found == NULL || !same_shape(found, tensor))
        return err_set(err, STATUS_CONFLICT, 0, "the checkpoint's %s %s", name,
                       found == NULL ? "is missing" : "has another shape or type than the model's");
    values = malloc(found->byte_count > 0 ? found->byte_count : 1);
    if (values == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for %s", name);
    status = safetensors_read(file, found, values, err);
    if (status == STATUS_OK)
        status = safetensors_check_values(name, values, tensor->count, err);
    if (status == STATUS_OK)
        status = write_state(net, state, index, values, err);
    free(values);
    return status;
}

/* Whether the checkpoint contains that state of the optimizer. */
static bool is_saved(const struct train *train, const struct checkpoint_state *from, int state)
{
    const struct scaler scaler = {.has_momentum = from->has_momentum, .applied = from->applied};

    if (state == TRAIN_PARAMETER)
        return true;
    return !train->options->evaluate &&
           optim_uses(&train->options->optim, (enum optim_state)state) &&
           optim_is_set((enum optim_state)state, &scaler);
}

/* Whether the net has a tensor of that name in a checkpoint. */
static bool is_known(struct net *net, const char *name)
{
    for (int state = TRAIN_PARAMETER; state < OPTIM_STATES; state++) {
        char prefix[TRAIN_PREFIX_BYTES];
        const size_t length = strlen(train_tensor_prefix(state, prefix));

        if (strncmp(name, prefix, length) != 0)
            continue;
        for (uint32_t i = 0; i < net_tensor_count(net); i++)
            if (strcmp(name + length, net_tensor(net, i)->name) == 0)
                return true;
    }
    return false;
}

/* As --pretrained, and PyTorch's load_state_dict(strict=True), refuse them. */
static enum status check_extra(struct net *net, const struct safetensors *file, struct err *err)
{
    for (size_t i = 0; i < file->tensor_count; i++)
        if (!is_known(net, file->tensors[i].name))
            return err_set(err, STATUS_CONFLICT, 0,
                           "the checkpoint has a tensor %.100s, which the model of --arch does not "
                           "have: it is of another model, or was changed",
                           file->tensors[i].name);
    return STATUS_OK;
}

static enum status load_net(struct train *train, const struct checkpoint *checkpoint,
                            struct err *err)
{
    struct net *net = train->net;
    enum status status = check_extra(net, &checkpoint->tensors, err);

    for (int state = TRAIN_PARAMETER; state < OPTIM_STATES; state++) {
        if (!is_saved(train, &checkpoint->state, state))
            continue;
        for (uint32_t i = 0; status == STATUS_OK && i < net_tensor_count(net); i++)
            if (state == TRAIN_PARAMETER || net_tensor(net, i)->trainable)
                status = load_tensor(net, i, &checkpoint->tensors, state, err);
    }
    return status;
}

/* A damaged one is told at once. Of those of other trainings the newest is, and nothing where all are: then it is the
 * error. */
void train_note_skipped(void *user, const struct err *why)
{
    struct train *train = user;

    if (why->status != STATUS_CONFLICT)
        log_line(LOG_WARNING, train_log_about(train), "checkpoint passed over: %s", why->text);
    else if (train->skipped_count++ == 0)
        train->skipped = *why;
}

void train_tell_skipped(struct train *train)
{
    if (train->skipped_count == 1)
        log_line(LOG_WARNING, train_log_about(train), "checkpoint passed over: %s",
                 train->skipped.text);
    if (train->skipped_count > 1)
        log_line(LOG_WARNING, train_log_about(train), "%u checkpoints passed over, the newest: %s",
                 train->skipped_count, train->skipped.text);
    train->skipped_count = 0;
}

static bool is_folder(const char *path)
{
    struct stat now;
    return stat(path, &now) == 0 && S_ISDIR(now.st_mode);
}

/* The file or folder that was asked for; NULL: none. Not for training from --checkpoint-dir. */
static const char *asked_path(const struct train *train)
{
    const struct options *options = train->options;

    if (options->resume == NULL)
        return options->evaluate && options->pretrained == NULL ? options->checkpoint_dir : NULL;
    if (strcmp(options->resume, "none") == 0)
        return NULL;
    if (strcmp(options->resume, "auto") == 0)
        return options->evaluate ? options->checkpoint_dir : NULL;
    return options->resume;
}

static enum status open_best(struct train *train, struct checkpoint *checkpoint, struct err *err)
{
    struct checkpoint_best best;
    struct err why;
    enum status status = checkpoint_best_read(train->options->checkpoint_dir, &best, &why);

    if (status == STATUS_OK)
        return checkpoint_open_step(checkpoint, train->options->checkpoint_dir, best.step, err);
    return err_set(err, status, why.code, "--resume best: %s", why.text);
}

static enum status open_asked(struct train *train, const char *path, struct checkpoint *checkpoint,
                              struct err *err)
{
    const bool is_best = strcmp(path, "best") == 0;
    const struct checkpoint_choice choice = {.like =
                                                 train->options->evaluate ? NULL : &train->state,
                                             .skipped = train_note_skipped,
                                             .user = train};
    struct err why;
    enum status status;

    if (!is_best && path != train->options->checkpoint_dir && access(path, F_OK) != 0 &&
        errno == ENOENT)
        return err_set(err, STATUS_NOT_FOUND, ENOENT,
                       "--resume: there is no %s; give a checkpoint, step-00000100.safetensors, or "
                       "the folder of some",
                       path);
    if (!is_best && (path == train->options->checkpoint_dir || is_folder(path))) {
        status = checkpoint_open_newest(checkpoint, path, &choice, err);
        if (status == STATUS_OK)
            train_tell_skipped(train);
        return status;
    }
    if (!is_best && pretrained_is_of_torch(path))
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "--resume %s: a file of torch.save, and --resume takes checkpoints of "
                       "ddp-worker: --pretrained FILE begins with its weights",
                       path);
    status = is_best ? open_best(train, checkpoint, err) : checkpoint_open(checkpoint, path, err);
    if (status == STATUS_OK && choice.like != NULL &&
        checkpoint_check(&checkpoint->state, choice.like, &why) != STATUS_OK) {
        checkpoint_close(checkpoint);
        return err_set(err, STATUS_CONFLICT, 0, "--resume %s: %s", path, why.text);
    }
    return status;
}

/* Rank 0: loads the checkpoint that the ranks agreed on, or else the one that was asked for. */
static enum status load(struct train *train, struct err *err)
{
    const struct options *options = train->options;
    const char *folder = options->checkpoint_dir;
    const bool is_agreed = train->is_resumed;
    const char *path = is_agreed ? folder : asked_path(train);
    struct checkpoint checkpoint;
    enum status status;

    if (path == NULL && train_resumes_from_dir(train))
        log_line(LOG_INFO, train_log_about(train),
                 "no checkpoint to go on from in %s: from the start", folder);
    if (path == NULL && options->evaluate && options->resume == NULL &&
        options->pretrained == NULL && !options->dummy)
        log_line(LOG_WARNING, train_log_about(train),
                 "--evaluate: no weights are given, so random ones are validated: --resume FILE "
                 "takes a checkpoint, --pretrained FILE PyTorch's weights");
    if (path == NULL)
        return STATUS_OK;
    status = is_agreed ? checkpoint_open_step(&checkpoint, path, train->state.step, err)
                       : open_asked(train, path, &checkpoint, err);
    if (status != STATUS_OK)
        return status;
    status = load_net(train, &checkpoint, err);
    if (status == STATUS_OK)
        status = train_take_position(train, &checkpoint.state, path, err);
    if (status == STATUS_OK) {
        /* A restart finds the one that was agreed on. It does not find the one of --resume FILE. */
        train->saved_step = is_agreed ? (int64_t)train->state.step : -1;
        train->is_from_file = !is_agreed;
        log_line(LOG_INFO, train_log_about(train), "resumed at step %u (epoch %u, step %u) from %s",
                 train->state.step, train->state.epoch + 1, train->state.step_in_epoch, path);
        if (options->pretrained != NULL)
            log_line(LOG_INFO, train_log_about(train),
                     "--pretrained has no effect here: the weights are those of the checkpoint");
    }
    checkpoint_close(&checkpoint);
    return status;
}

enum status train_resume(struct train *train, struct err *err)
{
    struct shared {
        struct checkpoint_state state;
        bool is_resumed, is_from_file;
    } shared = {0};
    struct err conflict = {0};
    enum status status = train_meet_folders(train, &conflict, err);

    if (status == STATUS_OK && train_resumes_from_dir(train))
        status = train_agree(train, &conflict, err);
    if (status == STATUS_OK && train->place->rank == 0)
        status = load(train, err);
    if (status != STATUS_OK || train->comm == NULL)
        return status;
    shared.state = train->state;
    shared.is_resumed = train->is_resumed;
    shared.is_from_file = train->is_from_file;
    status = comm_broadcast(train->comm, &shared, sizeof shared, 0, err);
    if (status != STATUS_OK)
        return status;
    train->state = shared.state;
    train->is_resumed = shared.is_resumed;
    train->is_from_file = shared.is_from_file;
    train_set_base_rate(train);
    return STATUS_OK;
}

static enum status share_tensor(struct train *train, enum optim_state state, uint32_t index,
                                struct err *err)
{
    size_t count = net_tensor(train->net, index)->count;
    float *values = calloc(count > 0 ? count : 1, sizeof *values);
    enum status status = STATUS_OK;

    if (values == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for an optimizer's state");
    if (train->place->rank == 0)
        status = net_optim_read(train->net, state, index, values, err);
    if (status == STATUS_OK)
        status = comm_broadcast(train->comm, values, count * sizeof *values, 0, err);
    if (status == STATUS_OK && train->place->rank != 0)
        status = net_optim_write(train->net, state, index, values, err);
    free(values);
    return status;
}

enum status train_share_optim(struct train *train, struct err *err)
{
    enum status status = STATUS_OK;

    if (train->comm == NULL || !train->is_resumed)
        return STATUS_OK;
    for (int state = 0; state < OPTIM_STATES; state++) {
        if (!is_saved(train, &train->state, state))
            continue;
        for (uint32_t i = 0; status == STATUS_OK && i < net_tensor_count(train->net); i++)
            if (net_tensor(train->net, i)->trainable)
                status = share_tensor(train, (enum optim_state)state, i, err);
    }
    return status;
}
