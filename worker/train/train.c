/* The loop over epochs and steps; step.c has one step.
 *
 * The position is state.epoch, state.step_in_epoch (steps done in that epoch) and state.step (steps
 * done in all). An epoch whose steps are done but whose validation is not has step_in_epoch ==
 * epoch_steps, so a resume validates first. */
#include "worker/train/internal.h"

#include <assert.h>
#include <math.h>

#include "common/io/mono.h"

static bool is_done(const struct train *train)
{
    return train->is_stopped_early || train->state.step >= train_total_steps(train);
}

static enum status stopped(struct err *err)
{
    return err_set(err, STATUS_CLOSED, 0, "stopped by a signal");
}

/* -- validation -- */

/* `before`: the step whose checkpoint was being written, -1: none. */
static void trace_written(struct train *train, int64_t before)
{
    if (train->saving_step == before)
        return;
    if (before >= 0)
        trace_span(train->trace, TRACE_CHECKPOINT, "checkpoint: write", train->saving_us, "step",
                   (uint64_t)before);
    train->saving_us = trace_now(train->trace);
}

/* For what no later report tells. */
static void tell_committed(struct train *train)
{
    const uint64_t step = train_told_step(train);

    if (step > 0)
        agent_committed(train->agent, step);
}

/* Rank 0: this generation ends. */
static void tell_last(struct train *train)
{
    tell_committed(train);
    if (train->saved_step > 0 && train_lacks_copies(train))
        log_line(
            LOG_WARNING, train_log_about(train),
            "the checkpoint of step %lld is on this node (%s) alone: the job was stopped before "
            "it could be copied; without this node it begins again",
            (long long)train->saved_step, train->place->node);
}

/* A validation may take longer than all steps, so the server hears meanwhile that a checkpoint is written. Copies
 * are collectives, for which the ranks do not meet here: with them it hears of it at the end. */
static enum status tell_saved(struct train *train, struct err *err)
{
    const int64_t before = train->saved_step, saving = train->saving_step;
    enum status status = train->copy_count == 0 ? train_saved(train, false, err) : STATUS_OK;

    trace_written(train, saving);
    if (status == STATUS_OK && train->saved_step != before)
        tell_committed(train);
    return status;
}

/* So the first checkpoint gets its copies before the validation. */
static enum status copy_first(struct train *train, struct err *err)
{
    enum status status = train_lacks_copies(train) ? train_saved(train, true, err) : STATUS_OK;

    tell_committed(train);
    return status;
}

/* Rank 0. */
static enum status stop_validation(struct train *train, struct signals *signals, struct err *err)
{
    enum status status = STATUS_OK;

    signals->writes = true;
    if (!train->options->evaluate)
        status = train_save_last(train, err);
    tell_last(train);
    return status == STATUS_OK ? stopped(err) : status;
}

static enum status count_batches(struct train *train, struct signals *signals,
                                 struct net_result *sums, struct err *err)
{
    struct loader_batch batch;
    uint32_t batches = 0;
    enum status status;

    loader_begin(train->validation_loader, 0, train->validation_indices, train->validation_count);
    while ((status = train_next_batch(train, train->validation_loader, &batch, err)) == STATUS_OK &&
           batch.n > 0) {
        struct net_result result = {0};
        const bool is_stopped = signals->stop; /* the signal may come between two looks */

        if (is_stopped && train->place->rank == 0)
            return stop_validation(train, signals, err);
        status = tell_saved(train, err);
        /* If rank 0 has not got the signal yet, it needs this rank's sums. If it has left, this rank leaves too. */
        if (status == STATUS_OK && is_stopped) {
            status = comm_check_next(train->comm, "validation", err);
            if (status == STATUS_PEER_LOST)
                return stopped(err);
        }
        if (status == STATUS_OK)
            status = train_forward(train, &batch, false, &result, err);
        if (status != STATUS_OK)
            return status;
        train_add_result(sums, &result);
        if (train->place->rank == 0 && ++batches % train->options->print_freq == 0)
            progress_print_validating(sums, (uint32_t)train->validation_count);
    }
    return status;
}

/* In doubles, in which the counts are exact. */
static enum status add_ranks(struct train *train, struct net_result *sums, struct err *err)
{
    double all[6] = {sums->loss_sum,
                     sums->images,
                     sums->top1,
                     sums->top5,
                     (double)train->unreadable.training,
                     (double)train->unreadable.validation};
    enum status status =
        train->comm != NULL ? comm_all_reduce_sum_f64(train->comm, all, 6, err) : STATUS_OK;

    if (status != STATUS_OK)
        return status;
    *sums = (struct net_result){all[0], (uint32_t)all[1], (uint32_t)all[2], (uint32_t)all[3]};
    status = train_tell_unreadable(train, all[4], all[5], err);
    if (status != STATUS_OK)
        return status;
    return sums->images > 0
               ? STATUS_OK
               : err_set(err, STATUS_BAD_INPUT, 0, "none of the %zu validation samples can be read",
                         train->validation_set->count);
}

static double metric_of(const char *name, const struct net_result *sums)
{
    const double n = sums->images > 0 ? sums->images : 1;

    switch ((enum options_metric)options_metric_named(name)) {
    case METRIC_VAL_LOSS:
        return sums->loss_sum / n;
    case METRIC_VAL_ACC1:
        return 100.0 * sums->top1 / n;
    case METRIC_VAL_ACC5:
        return 100.0 * sums->top5 / n;
    }
    return 0;
}

/* Gives the epoch's metrics to the schedule and to early stopping. Every rank has the same sums, so
 * all decide alike. */
static void apply_metrics(struct train *train, const struct net_result *sums)
{
    const struct options *options = train->options;
    struct checkpoint_state *state = &train->state;
    struct early_stop stop;

    schedule_metric(&train->schedule, &state->schedule, metric_of(options->plateau_metric, sums));
    if (options->early_stop_metric == NULL)
        return;
    stop = (struct early_stop){
        .maximize = options_metric_named(options->early_stop_metric) != METRIC_VAL_LOSS,
        .patience = options->early_stop_patience,
        .delta = options->early_stop_delta,
        .has_best = state->early_has_best,
        .best = state->early_best,
        .count = state->early_count,
    };
    train->is_stopped_early = early_stop_update(&stop, metric_of(options->early_stop_metric, sums));
    state->early_has_best = stop.has_best;
    state->early_best = stop.best;
    state->early_count = stop.count;
    if (train->is_stopped_early && train->place->rank == 0)
        progress_print_early_stop(options->early_stop_metric, stop.count);
}

/* Every rank has the same sums. A net whose loss is not finite is useless, even if its weights are
 * finite. */
static enum status check_validation(const struct train *train, const struct net_result *sums,
                                    struct err *err)
{
    const double loss = metric_of("val_loss", sums);

    if (isfinite(loss))
        return STATUS_OK;
    return err_set(
        err, STATUS_BAD_INPUT, 0,
        "validation after step %u: the loss is %s: a lower --lr or --opt-level O0 may help",
        train->state.step, isnan(loss) ? "nan" : "infinite");
}

/* Uses rank 0's running statistics, like PyTorch's DDP. */
static enum status validate(struct train *train, struct signals *signals, struct err *err)
{
    const uint64_t begun_us = mono_us();
    struct net_result sums = {0};
    enum status status = train->ddp != NULL ? ddp_forward_begin(train->ddp, err) : STATUS_OK;

    train_pause(train, AGENT_VALIDATING, "validation");
    if (status == STATUS_OK)
        status = count_batches(train, signals, &sums, err);
    if (status == STATUS_OK)
        status = add_ranks(train, &sums, err);
    if (status == STATUS_OK && train->place->rank == 0) {
        progress_print_validation(&sums);
        train_metrics_validation(train, &sums, mono_us() - begun_us);
    }
    trace_span(train->trace, TRACE_TRAINING, "validation", begun_us, "images", sums.images);
    if (status == STATUS_OK)
        status = check_validation(train, &sums, err);
    if (status != STATUS_OK || train->options->evaluate)
        return status;
    apply_metrics(train, &sums);
    return train_best(train, metric_of(train->options->best_metric, &sums), err);
}

/* -- training -- */

static bool is_checkpoint_due(const struct train *train)
{
    uint32_t every = train->options->checkpoint_every;

    return (every > 0 && train->state.step % every == 0) || is_done(train) ||
           train->state.step_in_epoch == train->epoch_steps;
}

/* `is_stopped`: there is no later step. */
static enum status save(struct train *train, struct signals *signals, bool is_stopped,
                        struct err *err)
{
    const uint64_t begun_us = trace_now(train->trace);
    const bool is_due = is_checkpoint_due(train);
    const int64_t before = train->saving_step;
    enum status status;

    signals->writes = is_stopped || is_due;
    if (is_stopped)
        status = train_lacks_copies(train) ? train_save_last_copied(train, err)
                                           : train_save_last(train, err);
    else
        status = is_due ? train_save(train, err) : train_saved(train, false, err);
    signals->writes = is_stopped;
    if (status == STATUS_OK && signals->save && !is_stopped && train->place->rank == 0)
        status = train_save_asked(train, &signals->save, err);
    if (is_stopped && train->place->rank == 0)
        tell_last(train);
    if ((train->saving_step >= 0 && train->saving_step != before) || is_stopped)
        trace_span(train->trace, TRACE_TRAINING, "checkpoint: copy", begun_us, "step",
                   train->state.step);
    trace_written(train, before);
    train_metrics_checkpoint(train);
    return status;
}

/* A file that --resume names is not in the folder, or not as one of this job. At the end of an epoch or of
 * training no step follows that would write it there. */
static enum status save_file(struct train *train, struct signals *signals, struct err *err)
{
    const bool is_over = train->state.step_in_epoch == train->epoch_steps || is_done(train);
    const bool is_due = train->is_from_file && is_over;

    train->is_from_file = false;
    if (!is_due)
        return STATUS_OK;
    train_pause(train, AGENT_SAVING, "checkpoint");
    return save(train, signals, false, err);
}

/* As long as no checkpoint has copies, rank 0 says after each step whether it stops: then all ranks copy its last
 * one. */
static enum status share_stop(struct train *train, bool *is_stopped, struct err *err)
{
    uint8_t word = *is_stopped;
    enum status status = train_lacks_copies(train)
                             ? comm_broadcast(train->comm, &word, sizeof word, 0, err)
                             : STATUS_OK;

    *is_stopped = word != 0;
    return status;
}

static enum status stopped_after_step(const struct train *train, struct err *err)
{
    return train->place->rank == 0
               ? stopped(err)
               : err_set(err, STATUS_PEER_LOST, 0, "rank 0 was stopped by a signal after step %u",
                         train->state.step);
}

/* After a signal rank 0 finishes its step and saves. The other ranks go on until rank 0 has left,
 * so that it can finish; main bounds that time. */
static enum status steps_of_epoch(struct train *train, struct signals *signals, struct err *err)
{
    enum status status = STATUS_OK;

    while (status == STATUS_OK && train->state.step_in_epoch < train->epoch_steps &&
           !is_done(train)) {
        bool is_stopped;
        train_log_samples(train);
        status = train_step(train, err);
        is_stopped = signals->stop && train->place->rank == 0;
        if (status == STATUS_OK)
            status = share_stop(train, &is_stopped, err);
        if (status == STATUS_OK && (is_stopped || is_checkpoint_due(train)))
            status = train_settle(train, true, err);
        if (is_checkpoint_due(train))
            train_pause(train, AGENT_SAVING,
                        "checkpoint"); /* rank 0 copies the net, the others wait in the next step */
        if (status == STATUS_OK)
            status = save(train, signals, is_stopped, err);
        if (status == STATUS_OK && is_stopped)
            status = stopped_after_step(train, err);
    }
    return status;
}

static enum status begin_epoch(struct train *train, struct err *err)
{
    size_t done, count;
    enum status status = train_begin_order(train, err);

    if (status != STATUS_OK)
        return status;
    done = (size_t)(train->state.step_in_epoch - train_steps_before(train)) *
           train_group_images(train);
    count = train->sampler.count;
    for (size_t i = 0; i < count; i++)
        train->indices[i] = sampler_index(&train->sampler, i);
    loader_begin(train->loader, train->state.epoch, train->indices + (done < count ? done : count),
                 done < count ? count - done : 0);
    progress_begin(&train->progress, mono_us());
    train_metrics_epoch_begin(train);
    return STATUS_OK;
}

/* Noise has no accuracy: if --max-steps ends an epoch of --dummy, validation is skipped. */
static bool skips_validation(const struct train *train)
{
    bool skips = train->options->dummy && train->state.step_in_epoch < train->epoch_steps;

    if (skips && train->place->rank == 0)
        progress_print_no_validation();
    return skips;
}

static enum status run_epoch(struct train *train, struct signals *signals, struct err *err)
{
    enum status status = begin_epoch(train, err);

    if (status == STATUS_OK)
        status = save_file(train, signals, err);
    if (status == STATUS_OK)
        status = steps_of_epoch(train, signals, err);
    if (status == STATUS_OK)
        train_tell_data_bound(train);
    if (status == STATUS_OK && train->place->rank == 0 && train->progress.epoch.images > 0)
        progress_print_training(&train->progress);
    if (status == STATUS_OK)
        status = train_metrics_epoch_end(train, err);
    if (status == STATUS_OK && !skips_validation(train)) {
        status = copy_first(train, err);
        if (status == STATUS_OK)
            status = validate(train, signals, err);
    }
    if (status != STATUS_OK || train->state.step_in_epoch < train->epoch_steps)
        return status;
    train->state.epoch++;
    train->state.step_in_epoch = 0;
    train->state.part_count = 0;
    return STATUS_OK;
}

static enum status run_epochs(struct train *train, struct signals *signals, struct err *err)
{
    const uint64_t begun_us = mono_us();
    enum status status = STATUS_OK;

    do
        status = run_epoch(train, signals, err);
    while (status == STATUS_OK && !is_done(train));
    if (status == STATUS_OK)
        status = train_trace_end(train, err);
    signals->writes = true;
    if (status == STATUS_OK)
        status = train_check_end(train, err);
    tell_committed(train);
    if (status == STATUS_OK && train->place->rank == 0)
        progress_print_end(mono_us() - begun_us);
    train_metrics_checkpoint(train);
    return status;
}

static enum status run_validation(struct train *train, struct signals *signals, struct err *err)
{
    enum status status = validate(train, signals, err);

    return status == STATUS_OK ? train_trace_end(train, err) : status;
}

/* If rank 0 left because of a signal, the other ranks see a lost peer. */
enum status train_run(struct train *train, struct signals *signals, struct err *err)
{
    struct err verdict = {.text = ""}; /* a lost peer is first seen as some failure of the device */
    enum status status;

    if (train->options->evaluate)
        status = run_validation(train, signals, err);
    else if (train->options->profile_steps > 0)
        status = train_profile(train, &signals->stop, err);
    else
        status = run_epochs(train, signals, err);
    if (status != STATUS_OK && train_nccl_verdict(train, &verdict) != STATUS_OK)
        status = err_set(err, verdict.status, verdict.code, "%s", verdict.text);
    if (status == STATUS_PEER_LOST && signals->stop)
        return stopped(err);
    return status;
}
