/* Checkpoints while training goes on.
 *
 * At the end of a step rank 0 copies the net's tensors, and a thread (worker/checkpoint/writer.h) writes the copy
 * while the next steps run. Only one checkpoint is written at a time; the next one waits for it. Its outcome is
 * checked between later steps:
 *   committed            the other nodes get their copies of the file, then the server is told
 *   a full disk          a warning; the earlier checkpoints stay
 *   a newer owner, or a weight that is not finite    training ends
 *
 * Copies are collectives, so all ranks must begin them between the same two steps. But only rank 0 knows when its
 * file is committed. So while a checkpoint is being written, and only then, rank 0 broadcasts one word between any
 * two steps. All ranks know when that is, since they begin checkpoints at the same steps. Until a first checkpoint
 * has copies, a word more says whether rank 0 was asked to stop (train.c). If all nodes share the folder, there are
 * no copies and no such words.
 *
 * A checkpoint that a signal asked for is rank 0's alone. The other ranks do not know of it, so it has no copies
 * and no word. Every other checkpoint waits for its end.
 *
 * If the server knows of a checkpoint, and a restarted job finds none on its nodes, the job is refused. So where
 * there are copies, the server hears of no checkpoint until one has some. After that a newer one without copies
 * is told, too: on other nodes the restart finds the older one, and says what is lost. */
#include <assert.h>
#include <stdlib.h>

#include "worker/checkpoint/writer.h"
#include "worker/net/state.h"
#include "worker/train/internal.h"

enum word { WORD_WRITING, WORD_COMMITTED, WORD_NONE };

static void take_scaler(struct train *train)
{
    const struct scaler scaler = net_scaler(train->net);

    train->state.loss_scale = scaler.scale;
    train->state.unskipped = scaler.unskipped;
    train->state.skipped_in_a_row = scaler.skipped_in_a_row;
    train->state.has_momentum = net_has_state(train->net, OPTIM_MOMENTUM);
}

enum status train_save_open(struct train *train, struct err *err)
{
    enum status status;

    if (train->place->rank != 0 || train->dir == NULL)
        return STATUS_OK;
    status = train_snapshot_new(train, err);
    return status == STATUS_OK ? checkpoint_writer_new(&train->writer, train->dir, err) : status;
}

/* Rank 0, with no checkpoint being written. */
static enum status begin(struct train *train, struct err *err)
{
    const struct safetensors_tensor *tensors;
    size_t tensor_count;
    enum status status = train_snapshot_take(train, &tensors, &tensor_count, err);

    if (status != STATUS_OK)
        return status;
    take_scaler(train);
    checkpoint_writer_begin(train->writer, &train->state, tensors, tensor_count);
    return STATUS_OK;
}

static enum status diverged(const struct err *why, struct err *err)
{
    return err_set(err, why->status, 0,
                   "%.150s: training ends, and keeps no checkpoint of it; a lower --lr may help",
                   why->text);
}

/* Rank 0: gets the outcome of the checkpoint that is being written. */
static enum status look(struct train *train, int64_t step, bool wait, enum word *word,
                        struct err *err)
{
    struct err outcome = {0};

    *word = WORD_WRITING;
    if (!checkpoint_writer_take(train->writer, wait, &outcome))
        return STATUS_OK;
    *word = outcome.status == STATUS_OK ? WORD_COMMITTED : WORD_NONE;
    if (outcome.status == STATUS_OK) {
        if (train->unsaved_count > 0)
            log_line(LOG_INFO, train_log_about(train),
                     "the checkpoint of step %lld is written, %u before it could not be",
                     (long long)step, train->unsaved_count);
        train->unsaved_count = 0;
        return STATUS_OK;
    }
    if (outcome.status == STATUS_BAD_INPUT)
        return diverged(&outcome, err);
    if (outcome.status == STATUS_CONFLICT)
        return err_set(err, outcome.status, outcome.code, "%s", outcome.text);
    if (train->unsaved_count++ == 0) /* the others fail alike */
        log_line(LOG_WARNING, train_log_about(train),
                 "no checkpoint at step %lld: %s; training goes on, the earlier checkpoints "
                 "stand, and a line says when one is written again",
                 (long long)step, outcome.text);
    return STATUS_OK;
}

bool train_lacks_copies(const struct train *train)
{
    return train->copy_count > 0 && !train->has_copies;
}

uint64_t train_told_step(const struct train *train)
{
    return train->saved_step > 0 && !train_lacks_copies(train) ? (uint64_t)train->saved_step : 0;
}

/* The file is committed: all ranks make the copies. */
static enum status copy(struct train *train, uint32_t step, struct err *err)
{
    enum status status = train_settle(train, true, err);

    train_pause(train, AGENT_SAVING, "copies of a checkpoint");
    if (status == STATUS_OK)
        status = train_copy(train, step, err);
    train->has_copies = train->has_copies || status == STATUS_OK;
    return status;
}

/* Gets the outcome of the checkpoint that a signal asked for. */
static enum status look_at_asked(struct train *train, bool wait, struct err *err)
{
    enum word word = WORD_NONE;
    enum status status;

    if (train->asked_step < 0)
        return STATUS_OK;
    status = look(train, train->asked_step, wait, &word, err);
    if (word == WORD_WRITING)
        return status;
    if (word == WORD_COMMITTED) {
        train->saved_step = train->asked_step;
        log_line(LOG_INFO, train_log_about(train),
                 "the checkpoint of step %lld that SIGUSR1 asked for is written",
                 (long long)train->asked_step);
    }
    train->asked_step = -1;
    return status;
}

enum status train_saved(struct train *train, bool wait, struct err *err)
{
    enum word word = WORD_NONE;
    enum status status = look_at_asked(train, wait, err);

    if (status != STATUS_OK || train->saving_step < 0)
        return status;
    if (train->place->rank == 0)
        status = look(train, train->saving_step, wait, &word, err);
    if (status == STATUS_OK && train->copy_count > 0)
        status = comm_broadcast(train->comm, &word, sizeof word, 0, err);
    if (status != STATUS_OK || word == WORD_WRITING)
        return status;
    if (word == WORD_COMMITTED && train->copy_count > 0)
        status = copy(train, (uint32_t)train->saving_step, err);
    if (status == STATUS_OK && word == WORD_COMMITTED && train->place->rank == 0)
        train->saved_step = train->saving_step; /* told to the server: there are copies of it */
    train->saving_step = -1;
    return status == STATUS_OK ? train_best_saved(train, err) : status;
}

enum status train_save(struct train *train, struct err *err)
{
    enum status status = train_saved(train, true, err);

    if (status != STATUS_OK || train->options->checkpoint_dir == NULL)
        return status;
    if (train->place->rank == 0)
        status = begin(train, err);
    if (train->place->rank == 0 || train->copy_count > 0)
        train->saving_step = train->state.step;
    return status;
}

enum status train_save_last(struct train *train, struct err *err)
{
    enum word word = WORD_NONE;
    enum status status = look_at_asked(train, true, err);

    assert(train->place->rank == 0);
    if (status == STATUS_OK && train->saving_step >= 0)
        status = look(train, train->saving_step, true, &word, err);
    if (word == WORD_COMMITTED)
        train->saved_step = train->saving_step;
    train->saving_step = -1;
    if (status == STATUS_OK)
        status = train_best_saved(train, err);
    if (status != STATUS_OK || train->options->checkpoint_dir == NULL ||
        train->saved_step == (int64_t)train->state.step)
        return status;
    status = begin(train, err);
    train->saving_step = train->state.step;
    if (status == STATUS_OK)
        status = look(train, train->saving_step, true, &word, err);
    train->saving_step = -1;
    if (word == WORD_COMMITTED)
        train->saved_step = train->state.step;
    return status;
}

enum status train_save_last_copied(struct train *train, struct err *err)
{
    const bool is_first = train->place->rank == 0;
    enum status status = is_first ? train_save_last(train, err) : STATUS_OK;
    enum word word = train->saved_step == (int64_t)train->state.step ? WORD_COMMITTED : WORD_NONE;

    train->saving_step = -1;
    if (status == STATUS_OK)
        status = comm_broadcast(train->comm, &word, sizeof word, 0, err);
    if (status == STATUS_OK && word == WORD_COMMITTED)
        status = copy(train, train->state.step, err);
    return status == STATUS_OK ? train_best_saved(train, err) : status;
}

enum status train_save_asked(struct train *train, atomic_bool *is_asked, struct err *err)
{
    const bool is_due = train->saving_step == (int64_t)train->state.step;
    enum status status;

    assert(train->place->rank == 0);
    if (train->options->checkpoint_dir == NULL) {
        *is_asked = false;
        log_line(LOG_WARNING, train_log_about(train),
                 "SIGUSR1 asks for a checkpoint, but there is no --checkpoint-dir to write it to");
        return STATUS_OK;
    }
    if (!is_due && (train->saving_step >= 0 || train->asked_step >= 0))
        return STATUS_OK;
    *is_asked = false;
    log_line(LOG_INFO, train_log_about(train),
             "SIGUSR1: writing a checkpoint of step %u, training goes on", train->state.step);
    if (is_due)
        return STATUS_OK;
    status = train_settle(train, true, err);
    train_pause(train, AGENT_SAVING, "a checkpoint that SIGUSR1 asks for");
    if (status == STATUS_OK)
        status = begin(train, err);
    if (status == STATUS_OK)
        train->asked_step = train->state.step;
    return status;
}

/* Checks all weights, unless a checkpoint has already shown that they are finite. */
static enum status check_weights(struct train *train, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t i = 0; status == STATUS_OK && i < net_tensor_count(train->net); i++) {
        const struct net_tensor *tensor = net_tensor(train->net, i);
        float *values = malloc((tensor->count > 0 ? tensor->count : 1) * sizeof *values);
        struct err why;

        if (values == NULL)
            return err_set(err, STATUS_MEMORY, 0, "no memory to look at %s", tensor->name);
        status = net_tensor_read(train->net, i, values, err);
        if (status == STATUS_OK &&
            safetensors_check_values(tensor->name, values, tensor->count, &why) != STATUS_OK)
            status = diverged(&why, err);
        free(values);
    }
    return status;
}

enum status train_check_end(struct train *train, struct err *err)
{
    enum status status = train_saved(train, true, err);

    if (status != STATUS_OK || train->place->rank != 0)
        return status;
    if (train->options->checkpoint_dir == NULL)
        return check_weights(train, err);
    if (train->saved_step == (int64_t)train->state.step)
        return STATUS_OK;
    return err_set(err, STATUS_IO, 0,
                   "training is done, but its last checkpoint, of step %u, could not be written "
                   "to %.100s (the warning before says why): free some space, and go on with "
                   "--resume auto",
                   train->state.step, train->options->checkpoint_dir);
}

void train_end_writing(struct train *train)
{
    checkpoint_writer_free(&train->writer);
}

void train_save_close(struct train *train)
{
    train_end_writing(train);
    train_snapshot_free(train);
}
