/* Clients that ask for the states of all jobs. Each has a random sequence of its own, so that the rest of a run is the
 * same without them. */
#include "tests/sim/oracle.h"

#define SOON_US 20000u
#define LATE_US (5 * SECOND_US) /* the server may have been restarted meanwhile */

static uint64_t draw(struct sim *sim, struct sim_ask *ask, uint64_t below)
{
    const uint64_t random = sim->random;
    uint64_t drawn;

    sim->random = ask->random;
    drawn = sim_draw(sim, below);
    ask->random = sim->random;
    sim->random = random;
    return drawn;
}

static uint64_t arrives_us(struct sim *sim, struct sim_ask *ask)
{
    return sim->now_us + 1 + draw(sim, ask, draw(sim, ask, 10) == 0 ? LATE_US : SOON_US);
}

static void ask_next(struct sim *sim, const struct sim_event *event);

static void ask_again(struct sim *sim, uint32_t index)
{
    const uint64_t us = draw(sim, &sim->asks[index], 4 * SECOND_US);

    sim_at(sim, sim->now_us + us, (struct sim_event){.run = ask_next, .number = index});
}

static void has_answer(struct sim *sim, const struct sim_event *event)
{
    oracle_answers(sim, &sim->asks[event->number]);
    ask_again(sim, event->number);
}

/* As rendezvous/server/answer.c: a job that has not ended is shown as the core has it. */
static const struct rdzv_record *read_job(const struct sim *sim, uint64_t job_id)
{
    const struct rdzv_record *record = rdzv_job_record(sim->server.core, job_id);
    const struct sim_row *row = disk_row(sim, job_id);

    if (record != NULL && !rdzv_state_is_final(record->state))
        return record;
    return row == NULL ? NULL : &row->record;
}

static void answer(struct sim *sim, const struct sim_event *event)
{
    struct sim_ask *ask = &sim->asks[event->number];
    const struct rdzv_record *record;

    if (!sim->server.alive || sim->server.incarnation != ask->server) {
        ask_again(sim, event->number); /* its connection is gone */
        return;
    }
    record = read_job(sim, ask->job_id);
    ask->is_found = record != NULL;
    if (record != NULL) {
        ask->generation = record->generation;
        ask->is = (struct sim_end){record->state, record->exit_code, record->signal};
    }
    sim_at(sim, arrives_us(sim, ask),
           (struct sim_event){.run = has_answer, .number = event->number});
}

static void ask_next(struct sim *sim, const struct sim_event *event)
{
    struct sim_ask *ask = &sim->asks[event->number];
    const struct sim_client *client = &sim->clients[draw(sim, ask, sim->client_count)];

    if (!client->acked || !sim->server.alive) {
        ask_again(sim, event->number);
        return;
    }
    ask->job_id = client->job_id + draw(sim, ask, client_job_count(client));
    ask->server = sim->server.incarnation;
    ask->at_us = sim->now_us;
    oracle_asks(sim, ask);
    sim_at(sim, arrives_us(sim, ask),
           (struct sim_event){.run = answer, .party = PARTY_SERVER, .number = event->number});
}

void asks_start(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_ASKS_MAX && sim->client_count > 0; i++) {
        sim->asks[i].random = (sim->seed + 1) * SIM_ASKS_MAX + i;
        ask_again(sim, i);
    }
}
