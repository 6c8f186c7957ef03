/* One training step: gradients, the optimizer, and the report of its outcome. A step is pending
 * from the time it is queued until the device has its outcome, which may be a step later. */
#include "worker/train/internal.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/io/mono.h"

/* Prints Apex's message. After too many skips in a row training stops and names the first value
 * that is not finite, since a falling loss scale does not say what is wrong. */
static enum status report_skip(struct train *train, const struct scaler *outcome, struct err *err)
{
    const struct scaler scaler = *outcome;
    char where[128], scale[AMP_SCALE_TEXT_BYTES];

    if (!scaler.was_skipped)
        return STATUS_OK;
    (void)amp_scale_text(scaler.scale, scale);
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

static enum status check_rate(const struct train *train, const struct schedule_now *now,
                              struct err *err)
{
    if (isfinite(now->lr) && isfinite(now->momentum))
        return STATUS_OK;
    return err_set(
        err, STATUS_BAD_INPUT, 0,
        "step %u: the learning rate is %g and the momentum %g: they must be finite; look "
        "at --lr and the options of the schedule",
        train->state.step + 1, progress_number(now->lr), progress_number(now->momentum));
}

/* A loss that is not finite makes weights that are not finite, and no later step repairs them. */
static enum status check_loss(struct train *train, const struct train_pending *pending, double loss,
                              struct err *err)
{
    char where[128];

    if (isfinite(loss))
        return STATUS_OK;
    net_describe_nonfinite(train->net, where, sizeof where);
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "step %u: the loss is %g; the first infinity or NaN is in %.100s: training ends "
                   "without a checkpoint of it; a lower --lr or --opt-level O0 may help",
                   pending->step, progress_number(loss), where);
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
static enum status report_progress(struct train *train, const struct train_pending *pending,
                                   double loss)
{
    const uint64_t told_step = train_told_step(train);
    const struct agent_progress progress = {
        .epoch = pending->epoch,
        .epochs = train->options->epochs,
        .step = pending->step,
        .steps = train_total_steps(train),
        .loss = loss,
        .samples_per_s = train->progress.images_per_s,
        .checkpoint_step = told_step,
        .timed_steps = train->timed.steps,
        .step_us = train->timed.step_us,
        .data_us = train->timed.data_us,
        .compute_us = train->timed.compute_us,
        .update_us = train->timed.update_us,
        .wait_us = train->timed.wait_us,
    };
    /* A new checkpoint is reported at once: otherwise a restart could take the job for one without
     * a checkpoint. */
    const bool is_urgent =
        train->told_step != told_step || pending->step >= train_total_steps(train);

    train->told_step = told_step;
    train->timed = (struct train_timed){0};
    return agent_report(train->agent, &progress, is_urgent);
}

/* With as many digits as a double has. The first failure is printed and ends the log. */
static void log_loss(struct train *train, const struct progress_place *place, double loss)
{
    if (fprintf(train->loss_log, "%u %u %.17g\n", place->epoch, place->step,
                progress_number(loss)) >= 0 &&
        fflush(train->loss_log) == 0)
        return;
    log_line(LOG_WARNING, train_log_about(train),
             "--loss-log %s: cannot write: %s; it ends before step %u, training goes on",
             train->options->loss_log, strerror(errno), train->state.step);
    (void)fclose(train->loss_log);
    train->loss_log = NULL;
}

/* Each epoch has a line: of its last step, where it has fewer steps than --print-freq. */
static bool is_due(const struct train *train, const struct train_pending *pending)
{
    if (pending->step_in_epoch % train->options->print_freq == 0)
        return true;
    return !train->progress.has_line && (pending->step_in_epoch == train->epoch_steps ||
                                         pending->step == train_total_steps(train));
}

static enum status report_step(struct train *train, const struct train_report *report,
                               struct err *err)
{
    const struct options *options = train->options;
    const struct train_pending *pending = report->pending;
    const bool prints = is_due(train, pending);
    const struct progress_place place = {pending->epoch, options->epochs, pending->step_in_epoch,
                                         train->epoch_steps, pending->lr};

    if (train->loss_log != NULL)
        log_loss(train, &place, report->loss);
    if (report_progress(train, pending, report->loss) != STATUS_OK)
        return err_set(err, STATUS_CLOSED, 0, "the shim is gone: this generation is over");
    train_metrics_step(train, report, prints);
    train->progress.has_line |= prints;
    if (train->place->rank == 0 && prints)
        progress_print(&train->progress, &place, report->loss);
    return STATUS_OK;
}

/* `outcome` is that of the oldest pending step. */
static enum status finish(struct train *train, const struct net_outcome *outcome, struct err *err)
{
    const struct train_pending pending = train->pending[0];
    const struct net_result *sums = pending.is_summed ? &pending.sums : &outcome->result;
    const struct train_report report = {&pending, sums->loss_sum / sums->images,
                                        outcome->scaler.scale};
    enum status status = STATUS_OK;

    assert(train->pending_count > 0 && sums->images > 0);
    train_nccl_progress(train);
    train->pending_count--;
    memmove(train->pending, train->pending + 1, train->pending_count * sizeof *train->pending);
    if (train->options->amp.scaler.is_dynamic) {
        train->state.applied += !outcome->scaler.was_skipped;
        status = report_skip(train, &outcome->scaler, err);
    }
    if (status == STATUS_OK && !outcome->scaler.was_skipped)
        status = check_loss(train, &pending, report.loss, err);
    progress_count(&train->progress, outcome->ended_us, sums, train->place->world, &pending.times);
    return status == STATUS_OK ? report_step(train, &report, err) : status;
}

enum status train_settle(struct train *train, bool all, struct err *err)
{
    enum status status = STATUS_OK;
    bool taken = true;

    while (status == STATUS_OK && taken && train->pending_count > 0) {
        struct net_outcome outcome;
        bool wait = all || train->pending_count == NET_OUTCOMES;

        if (wait)
            agent_doing(train->agent, "waiting for the device: the outcome of a step");
        status = net_outcome_take(train->net, wait, &outcome, &taken, err);
        if (status == STATUS_OK && taken)
            status = finish(train, &outcome, err);
    }
    return status;
}

/* With a dynamic loss scale the rate depends on whether the previous step was skipped. The host
 * waits for that outcome only after it has queued this step's gradients, so that the device has
 * work meanwhile. */
static enum status compute(struct train *train, struct train_pending *pending, uint64_t *wait_us,
                           struct err *err)
{
    const struct options *options = train->options;
    const struct net_clip clip = {options->clip_grad_value, options->clip_grad_norm};
    struct schedule_now now;
    struct optim optim;
    uint64_t begun_us, update_us;
    enum status status = train_group(train, pending, wait_us, err);

    if (status == STATUS_OK)
        status = train_settle(train, options->amp.scaler.is_dynamic, err);
    if (status != STATUS_OK)
        return status;
    now = train_rate(train);
    status = check_rate(train, &now, err);
    if (status != STATUS_OK)
        return status;
    optim = optim_now(options, &now);
    begun_us = trace_now(train->trace);
    update_us = mono_us();
    agent_doing(train->agent, "optimizer step");
    if (clip.value > 0.0F || clip.norm > 0.0F)
        net_clip(train->net, &clip);
    net_update(train->net, &optim);
    train->update_us = mono_us() - update_us;
    trace_span(train->trace, TRACE_TRAINING, "optimizer", begun_us, NULL, 0);
    pending->lr = now.lr;
    return STATUS_OK;
}

/* Under NCCL the host cannot distinguish computing from waiting for other ranks, since both happen
 * on the device. So all of it counts as waiting, and a rank is found slow only by its data time. */
static void add_times(struct train *train, uint64_t step_us, uint64_t data_us, uint64_t exposed_us)
{
    struct train_timed *timed = &train->timed;
    const uint64_t known_us = data_us + train->update_us;
    const uint64_t left_us = step_us > known_us ? step_us - known_us : 0;
    const uint64_t wait_us = train->uses_nccl || exposed_us > left_us ? left_us : exposed_us;

    timed->steps++;
    timed->step_us += step_us;
    timed->data_us += data_us;
    timed->update_us += train->update_us;
    timed->wait_us += wait_us;
    timed->compute_us += left_us - wait_us;
}

static enum status step(struct train *train, struct err *err)
{
    const uint64_t begun_us = mono_us();
    struct train_pending pending;
    struct ddp_times times = {0};
    uint64_t wait_us = 0;
    enum status status = train_nccl_verdict(train, err);

    if (status == STATUS_OK)
        status = compute(train, &pending, &wait_us, err);
    if (status != STATUS_OK)
        return status;
    assert(train->state.step_in_epoch < train->epoch_steps);
    train->state.step++;
    train->state.step_in_epoch++;
    train->state.applied += !train->options->amp.scaler.is_dynamic;
    pending.epoch = train->state.epoch + 1;
    pending.step_in_epoch = train->state.step_in_epoch;
    pending.step = train->state.step;
    if (train->ddp != NULL)
        times = ddp_times(train->ddp);
    pending.times = (struct progress_times){wait_us, times.comm_us, times.exposed_us};
    assert(train->pending_count < NET_OUTCOMES); /* else the net would drop the oldest outcome */
    train->pending[train->pending_count++] = pending;
    add_times(train, mono_us() - begun_us, wait_us, times.exposed_us);
    train->profile_wait_us += wait_us;
    train->profile_comm_us += times.comm_us;
    train->profile_exposed_us += times.exposed_us;
    return train_settle(train, false, err);
}

enum status train_step(struct train *train, struct err *err)
{
    enum status status = train_trace_step(train, err);
    const uint64_t begun_us = trace_now(train->trace);

    if (status == STATUS_OK)
        status = step(train, err);
    trace_span(train->trace, TRACE_TRAINING, "step", begun_us, "step", train->state.step);
    return status;
}
