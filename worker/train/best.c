/* --best: the checkpoint with the best validation is kept, beside the newest ones.
 *
 * A checkpoint is begun before its weights are validated, and may still be written during the validation. So a
 * validation only notes that its checkpoint is the best. Once that checkpoint is committed, every rank that writes
 * to a folder marks it there. Until it is marked it does not count: a full disk may keep it from being written.
 * best.json alone stores the best value, so training that resumes compares with the best of the existing
 * checkpoints. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "worker/train/internal.h"

static bool is_kept(const struct train *train)
{
    return train->reports != NULL && strcmp(train->options->best_metric, "none") != 0;
}

static bool is_better(const struct train *train, double value)
{
    if (!isfinite(value))
        return false;
    if (!train->has_best)
        return true;
    return options_metric_named(train->options->best_metric) == METRIC_VAL_LOSS
               ? value < train->best.value
               : value > train->best.value;
}

/* Rank 0: what its folder has. */
static void look(struct train *train)
{
    const char *metric = train->options->best_metric;
    struct checkpoint_best found;
    struct err why;
    const enum status status = checkpoint_best_read(train->options->checkpoint_dir, &found, &why);

    if (status == STATUS_NOT_FOUND)
        return;
    if (status != STATUS_OK)
        log_line(LOG_WARNING, train_log_about(train), "no best checkpoint is known: %s", why.text);
    else if (strcmp(found.metric, metric) != 0)
        log_line(LOG_WARNING, train_log_about(train),
                 "the best checkpoint so far, of step %u, is that by %s; with --best %s the next "
                 "validation takes its place",
                 found.step, found.metric, metric);
    else {
        train->has_best = true;
        train->best = found;
    }
}

enum status train_best_open(struct train *train, struct err *err)
{
    struct shared {
        struct checkpoint_best best;
        bool has_best;
    } shared;

    if (!is_kept(train))
        return STATUS_OK;
    if (train->place->rank == 0)
        look(train);
    if (train->comm == NULL)
        return STATUS_OK;
    memset(&shared, 0, sizeof shared);
    shared.best = train->best;
    shared.has_best = train->has_best;
    enum status status = comm_broadcast(train->comm, &shared, sizeof shared, 0, err);
    train->best = shared.best;
    train->has_best = shared.has_best;
    return status;
}

/* The wanted checkpoint has been committed, or never will be. */
static enum status mark(struct train *train, struct err *err)
{
    const struct checkpoint_best *wanted = &train->best_wanted;
    struct err why;
    enum status status = STATUS_OK;

    train->is_best_wanted = false;
    if (train->dir != NULL)
        status = checkpoint_best_mark(train->dir, wanted, &why);
    if (status == STATUS_CONFLICT)
        return err_set(err, status, why.code, "%s", why.text);
    if (status == STATUS_OK) {
        train->has_best = true;
        train->best = *wanted;
    }
    if (status == STATUS_OK && train->place->rank == 0)
        log_line(LOG_INFO, train_log_about(train), "best so far: %s %.6g, step %u", wanted->metric,
                 wanted->value, wanted->step);
    else if (status != STATUS_OK && (train->place->rank == 0 || status != STATUS_NOT_FOUND))
        log_line(LOG_WARNING, train_log_about(train),
                 "step %u has the best %s so far, but is not kept as the best: %s", wanted->step,
                 wanted->metric, why.text);
    return STATUS_OK;
}

enum status train_best_saved(struct train *train, struct err *err)
{
    return train->is_best_wanted && (int64_t)train->best_wanted.step != train->saving_step
               ? mark(train, err)
               : STATUS_OK;
}

enum status train_best(struct train *train, double value, struct err *err)
{
    if (!is_kept(train) || !is_better(train, value))
        return STATUS_OK;
    assert(!train->is_best_wanted); /* the checkpoint before was waited for */
    train->is_best_wanted = true;
    train->best_wanted = (struct checkpoint_best){.step = train->state.step, .value = value};
    (void)snprintf(train->best_wanted.metric, sizeof train->best_wanted.metric, "%s",
                   train->options->best_metric);
    return train_best_saved(train, err);
}
