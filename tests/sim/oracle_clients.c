/* What clients are told of a job is linearizable.
 *
 * A job, as clients see it, is a value that only rises, at any time: absent, waiting, then in each generation starting,
 * running and over, and at last ended. Operations on it have an order that explains their answers exactly if no answer
 * is below one that some client had before this one asked: an order by value contradicts the order of times only where
 * two operations do. So the highest value told, remembered when an operation begins, is all that has to be compared.
 * Besides:
 * - A submit that was answered says that the job is there. That a repeated submit gives the same job is the rule "stored".
 * - A cancel that was answered: no generation begins after it, so all who ask later see the same one, and none saw a
 *   later one; the job does not wait, and ends as cancelled. One that was refused says that the job has ended.
 * - A job ends once: all see the same end.
 * A store that was put back has another history; what was told before does not count. */
#include "tests/sim/oracle_facts.h"

#define ENDED UINT64_MAX

static uint64_t value_of(const struct sim_ask *ask)
{
    if (!ask->is_found)
        return 0;
    if (rdzv_state_is_final(ask->is.state))
        return ENDED;
    return 1 + 4 * (uint64_t)ask->generation +
           (ask->is.state == JOB_STARTING  ? 0
            : ask->is.state == JOB_RUNNING ? 1
                                           : 2);
}

static void raise_floor(struct oracle_shown *shown, uint64_t value)
{
    if (shown->floor < value)
        shown->floor = value;
}

void oracle_asks(const struct sim *sim, struct sim_ask *ask)
{
    const struct oracle_shown *shown = &oracle_job(sim, ask->job_id)->shown;

    ask->floor = shown->floor;
    ask->cancel_was_acked = shown->cancel_is_acked;
}

static void check_end(struct sim *sim, struct oracle_shown *shown, const struct sim_ask *ask)
{
    const struct sim_end *end = &shown->end;

    if (!rdzv_state_is_final(end->state))
        shown->end = ask->is;
    else if (end->state != ask->is.state || end->exit_code != ask->is.exit_code ||
             end->signal != ask->is.signal)
        sim_fail(sim, "linear",
                 "job %llu ended as %s, %d, signal %u, and then as %s, %d, signal %u",
                 (unsigned long long)ask->job_id, job_state_name(end->state), end->exit_code,
                 end->signal, job_state_name(ask->is.state), ask->is.exit_code, ask->is.signal);
}

static void check_cancelled(struct sim *sim, struct oracle_shown *shown, const struct sim_ask *ask)
{
    if (ask->cancel_was_acked && shown->cancelled == 0)
        shown->cancelled = ask->generation;
    if (shown->cancelled != 0 && shown->generation > shown->cancelled)
        sim_fail(sim, "linear",
                 "job %llu was cancelled in g%u, as was acknowledged, and a client saw g%u",
                 (unsigned long long)ask->job_id, shown->cancelled, shown->generation);
    if (ask->cancel_was_acked && (ask->is.state == JOB_QUEUED || ask->is.state == JOB_SUCCEEDED ||
                                  ask->is.state == JOB_FAILED))
        sim_fail(sim, "linear", "job %llu is %s, and its cancel was acknowledged before",
                 (unsigned long long)ask->job_id, job_state_name(ask->is.state));
}

void oracle_answers(struct sim *sim, const struct sim_ask *ask)
{
    struct oracle_shown *shown = &oracle_job(sim, ask->job_id)->shown;
    const uint64_t value = value_of(ask);

    if (ask->at_us <= sim->past.put_back_us)
        return;
    if (value < ask->floor)
        sim_fail(sim, "linear",
                 "job %llu: a client is told %s, g%u (%llu), and before it asked another was told "
                 "what comes later (%llu)",
                 (unsigned long long)ask->job_id,
                 ask->is_found ? job_state_name(ask->is.state) : "that it is not there",
                 ask->generation, (unsigned long long)value, (unsigned long long)ask->floor);
    raise_floor(shown, value);
    if (!ask->is_found)
        return;
    if (shown->generation < ask->generation)
        shown->generation = ask->generation;
    if (value == ENDED)
        check_end(sim, shown, ask);
    check_cancelled(sim, shown, ask);
}

void oracle_told_submitted(struct sim *sim, const struct sim_client *client)
{
    for (uint32_t i = 0; i < client_job_count(client); i++)
        raise_floor(&oracle_job(sim, client->job_id + i)->shown, 1);
}

void oracle_told_cancel(struct sim *sim, uint64_t job_id, bool is_refused)
{
    struct oracle_shown *shown = &oracle_job(sim, job_id)->shown;

    if (is_refused)
        raise_floor(shown, ENDED);
    else
        shown->cancel_is_acked = true;
}
