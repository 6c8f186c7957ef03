/* The loop. Where training stands is state.epoch, state.step_in_epoch (steps done of it) and
 * state.step (of all); an epoch whose steps are done but whose validation is not has step_in_epoch
 * == steps_per_epoch, so a resume validates first. */
#include "worker/train_parts.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

static uint64_t total_steps(const struct train *train)
{
    uint64_t steps = (uint64_t)train->options->epochs * train->steps_per_epoch;
    uint32_t max = train->options->max_steps;

    return max > 0 && max < steps ? max : steps;
}

static bool is_done(const struct train *train)
{
    return train->is_stopped_early || train->state.step >= total_steps(train);
}

static enum status stopped(struct err *err)
{
    return err_set(err, STATUS_CLOSED, 0, "stopped by a signal");
}

/* -- validation -- */

static enum status count_batches(struct train *train, const volatile bool *stop,
                                 struct net_result *sums, struct err *err)
{
    struct loader_batch batch;

    loader_begin(train->validation_loader, train->validation_indices, train->validation_count);
    while ((batch = loader_next(train->validation_loader)).n > 0) {
        struct net_result result = {0};
        enum status status;
        if (*stop && train->place->rank == 0)
            return stopped(err);
        status = train_forward(train, &batch, false, &result, err);
        if (status != STATUS_OK)
            return status;
        sums->loss_sum += result.loss_sum;
        sums->images += result.images;
        sums->top1 += result.top1;
        sums->top5 += result.top5;
    }
    return STATUS_OK;
}

/* Counts are exact in a double. */
static enum status add_ranks(struct train *train, struct net_result *sums, struct err *err)
{
    double all[4] = {sums->loss_sum, sums->images, sums->top1, sums->top5};
    enum status status = comm_all_reduce_sum_f64(train->comm, all, 4, err);

    if (status == STATUS_OK)
        *sums = (struct net_result){all[0], (uint32_t)all[1], (uint32_t)all[2], (uint32_t)all[3]};
    return status;
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

/* Every rank has the same sums, so all come to the same end. */
static void judge(struct train *train, const struct net_result *sums)
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
    train->is_stopped_early = early_stop_tell(&stop, metric_of(options->early_stop_metric, sums));
    state->early_has_best = stop.has_best;
    state->early_best = stop.best;
    state->early_count = stop.count;
    if (train->is_stopped_early && train->place->rank == 0)
        progress_print_early_stop(options->early_stop_metric, stop.count);
}

/* Running statistics are rank 0's, as under PyTorch's DDP. */
static enum status validate(struct train *train, const volatile bool *stop, struct err *err)
{
    struct net_result sums = {0};
    enum status status = train->ddp != NULL ? ddp_forward_begin(train->ddp, err) : STATUS_OK;

    train_nccl_rest(train);
    if (status == STATUS_OK)
        status = count_batches(train, stop, &sums, err);
    if (status == STATUS_OK && train->comm != NULL)
        status = add_ranks(train, &sums, err);
    if (status == STATUS_OK && train->place->rank == 0)
        progress_print_validation(&sums);
    if (status == STATUS_OK && !train->options->evaluate)
        judge(train, &sums);
    return status;
}

/* -- training -- */

/* Apex's message. A loss scale that keeps falling explains nothing by itself: after too many skips
 * in a row training stops and says where the first bad value is. */
static enum status report_skip(struct train *train, const struct scaler *outcome, struct err *err)
{
    const struct scaler scaler = *outcome;
    char where[128], scale[SCALER_TEXT_BYTES];

    if (!scaler.was_skipped)
        return STATUS_OK;
    (void)scaler_text(scaler.scale, scale);
    if (train->place->rank == 0) {
        (void)printf("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to %s\n",
                     scale);
        (void)fflush(stdout);
    }
    if (scaler.skipped_in_a_row < train->options->max_skipped_steps)
        return STATUS_OK;
    net_describe_nonfinite(train->net, where, sizeof where);
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "%u steps in a row were skipped, the loss scale is %s: the first infinity or "
                   "NaN is in %.100s; a lower --lr or --opt-level O0 may help",
                   scaler.skipped_in_a_row, scale, where);
}

static struct schedule_now rate_now(const struct train *train)
{
    const struct checkpoint_state *state = &train->state;

    return schedule_at(&train->schedule, &state->schedule, state->applied, state->epoch,
                       state->step_in_epoch);
}

/* The schedule's rate, and its momentum: beta1 where that is Adam's, as in PyTorch's OneCycleLR. */
static struct optim optim_now(const struct options *options, const struct schedule_now *now)
{
    struct optim optim = options->optim;

    optim.lr = (float)now->lr;
    if (optim_uses(&optim, OPTIM_MOMENTUM))
        optim.momentum = (float)now->momentum;
    else
        optim.beta1 = now->momentum;
    return optim;
}

/* STATUS_CLOSED: the shim is gone. */
static enum status tell(struct train *train, const struct train_queued *queued, double loss)
{
    const struct agent_progress progress = {
        .epoch = queued->epoch,
        .epochs = train->options->epochs,
        .step = queued->step,
        .steps = total_steps(train),
        .loss = loss,
        .samples_per_s = train->progress.images_per_s,
        .checkpoint_step = train->saved_step > 0 ? (uint64_t)train->saved_step : 0,
    };
    return agent_tell(train->agent, &progress, queued->step >= total_steps(train));
}

static enum status show(struct train *train, const struct train_queued *queued, double loss,
                        struct err *err)
{
    const struct options *options = train->options;
    const struct progress_place place = {queued->epoch, options->epochs, queued->step_in_epoch,
                                         train->steps_per_epoch, queued->lr};

    if (train->loss_log != NULL)
        (void)fprintf(train->loss_log, "%u %u %.9f\n", place.epoch, place.step, loss);
    if (tell(train, queued, loss) != STATUS_OK)
        return err_set(err, STATUS_CLOSED, 0, "the shim is gone: this generation is over");
    if (train->place->rank == 0 && place.step % options->print_freq == 0)
        progress_print(&train->progress, &place, loss);
    return STATUS_OK;
}

/* The oldest step's outcome is there. */
static enum status finish(struct train *train, const struct net_outcome *outcome, struct err *err)
{
    const struct train_queued queued = train->queued[0];
    const struct net_result *sums = queued.is_summed ? &queued.sums : &outcome->result;
    enum status status = STATUS_OK;

    train_nccl_progress(train);
    train->queued_count--;
    memmove(train->queued, train->queued + 1, train->queued_count * sizeof *train->queued);
    if (train->options->amp.scaler.is_dynamic) {
        train->state.applied += !outcome->scaler.was_skipped;
        status = report_skip(train, &outcome->scaler, err);
    }
    return status == STATUS_OK ? show(train, &queued, sums->loss_sum / sums->images, err) : status;
}

enum status train_settle(struct train *train, bool all, struct err *err)
{
    enum status status = STATUS_OK;
    bool taken = true;

    while (status == STATUS_OK && taken && train->queued_count > 0) {
        struct net_outcome outcome;
        bool wait = all || train->queued_count == NET_OUTCOMES;

        status = net_outcome_take(train->net, wait, &outcome, &taken, err);
        if (status == STATUS_OK && taken)
            status = finish(train, &outcome, err);
    }
    return status;
}

/* With a dynamic loss scale the rate depends on whether the step before was skipped. That is asked
 * when this step's gradients are under way, so the device has work while the host waits. */
static enum status compute(struct train *train, struct train_queued *queued, uint64_t *wait_us,
                           struct err *err)
{
    const struct options *options = train->options;
    const struct net_clip clip = {options->clip_grad_value, options->clip_grad_norm};
    struct schedule_now now;
    struct optim optim;
    enum status status = train_group(train, queued, wait_us, err);

    if (status == STATUS_OK)
        status = train_settle(train, options->amp.scaler.is_dynamic, err);
    if (status != STATUS_OK)
        return status;
    now = rate_now(train);
    optim = optim_now(options, &now);
    if (clip.value > 0.0F || clip.norm > 0.0F)
        net_clip(train->net, &clip);
    net_update(train->net, &optim);
    queued->lr = now.lr;
    return STATUS_OK;
}

enum status train_step(struct train *train, struct err *err)
{
    struct train_queued queued;
    struct ddp_times times = {0};
    uint64_t wait_us = 0;
    enum status status = train_nccl_verdict(train, err);

    if (status == STATUS_OK)
        status = compute(train, &queued, &wait_us, err);
    if (status != STATUS_OK)
        return status;
    train->state.step++;
    train->state.step_in_epoch++;
    train->state.applied += !train->options->amp.scaler.is_dynamic;
    queued.epoch = train->state.epoch + 1;
    queued.step_in_epoch = train->state.step_in_epoch;
    queued.step = train->state.step;
    train->queued[train->queued_count++] = queued;
    if (train->ddp != NULL)
        times = ddp_times(train->ddp);
    train->profile_wait_us += wait_us;
    train->profile_comm_us += times.comm_us;
    train->profile_exposed_us += times.exposed_us;
    progress_add(&train->progress, (uint64_t)queued.sums.images * train->place->world, wait_us,
                 times.comm_us, times.exposed_us);
    return train_settle(train, false, err);
}

static bool is_checkpoint_due(const struct train *train)
{
    uint32_t every = train->options->checkpoint_every;

    return (every > 0 && train->state.step % every == 0) || is_done(train) ||
           train->state.step_in_epoch == train->steps_per_epoch;
}

/* A signal ends training behind a finished step of rank 0, which saves. The other ranks go on until
 * rank 0 has left, so that its step can be finished; main bounds that by a time. */
static enum status steps_of_epoch(struct train *train, const volatile bool *stop, struct err *err)
{
    enum status status = STATUS_OK;

    while (status == STATUS_OK && train->state.step_in_epoch < train->steps_per_epoch &&
           !is_done(train)) {
        bool is_stopped;
        status = train_step(train, err);
        is_stopped = *stop && train->place->rank == 0;
        if (status == STATUS_OK && (is_stopped || is_checkpoint_due(train)))
            status = train_settle(train, true, err);
        if (is_checkpoint_due(train))
            train_nccl_rest(train); /* rank 0 writes, the others wait for it in the next step */
        if (status == STATUS_OK && (is_stopped || is_checkpoint_due(train)))
            status = train_save(train, err);
        if (status == STATUS_OK && is_stopped)
            status = stopped(err);
    }
    return status;
}

static void begin_epoch(struct train *train)
{
    size_t done = (size_t)train->state.step_in_epoch * train_group_images(train);
    size_t count = train->sampler.count;

    sampler_set_epoch(&train->sampler, train->state.epoch);
    for (size_t i = 0; i < count; i++)
        train->indices[i] = sampler_index(&train->sampler, i);
    loader_begin(train->loader, train->indices + (done < count ? done : count),
                 done < count ? count - done : 0);
    progress_begin(&train->progress);
}

static enum status run_epoch(struct train *train, const volatile bool *stop, struct err *err)
{
    enum status status;

    begin_epoch(train);
    status = steps_of_epoch(train, stop, err);
    if (status == STATUS_OK)
        status = validate(train, stop, err);
    if (status != STATUS_OK || train->state.step_in_epoch < train->steps_per_epoch)
        return status;
    train->state.epoch++;
    train->state.step_in_epoch = 0;
    return STATUS_OK;
}

/* That rank 0 left because of a signal shows as a lost peer on the others. */
enum status train_run(struct train *train, const volatile bool *stop, struct err *err)
{
    struct err verdict = {.text = ""}; /* a loss shows as some failure of the device first */
    enum status status = STATUS_OK;

    if (train->options->evaluate)
        return validate(train, stop, err);
    if (train->options->profile_steps > 0)
        return train_profile(train, stop, err);
    do
        status = run_epoch(train, stop, err);
    while (status == STATUS_OK && !is_done(train));
    if (status != STATUS_OK && train_nccl_verdict(train, &verdict) != STATUS_OK)
        status = err_set(err, verdict.status, verdict.code, "%s", verdict.text);
    if (status == STATUS_PEER_LOST && *stop)
        return stopped(err);
    return status;
}
