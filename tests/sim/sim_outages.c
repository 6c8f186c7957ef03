/* Faults of the server: it dies, is stopped, starts again as another one, and its clock is set. */
#include "tests/sim/oracle.h"
#include "tests/sim/sim.h"

/* number: the fault that ended it */
static void restart_server(struct sim *sim, const struct sim_event *event)
{
    sim->server.tear = 0;
    if (sim->server.alive)
        return;
    if (event->number == FAULT_SERVER_OLD) {
        sim_note(sim, "the stored jobs are as an older version has written them");
        disk_downgrade(sim);
        oracle_server_started(sim, true);
    } else if (event->number == FAULT_LEASE) {
        sim_note(sim, "the server's --lease is %llu s now, and was %llu s",
                 (unsigned long long)(event->asked_us / SECOND_US),
                 (unsigned long long)(sim->lease_us / SECOND_US));
        sim->lease_us = event->asked_us;
    }
    server_start(sim);
}

/* Another one than now. */
static uint64_t choose_lease(struct sim *sim)
{
    static const uint64_t leases_us[] = {20 * SECOND_US, 30 * SECOND_US, 60 * SECOND_US,
                                         90 * SECOND_US};
    uint64_t at = sim_draw(sim, 3);

    return leases_us[at] == sim->lease_us ? leases_us[3] : leases_us[at];
}

void outage_kill(struct sim *sim, enum sim_fault kind)
{
    struct sim_event event = {.run = restart_server, .number = kind};

    if (!sim->server.alive)
        return;
    if (kind == FAULT_LEASE)
        event.asked_us = choose_lease(sim);
    if (kind != FAULT_SERVER_OLD && fault_strikes(sim, FAULT_TORN))
        sim->server.tear = 1 + (uint32_t)sim_draw(sim, sim_chance(sim, 700) ? 6 : 40);
    else
        server_kill(sim);
    sim_at(sim, sim->now_us + fault_down_us(sim), event);
}

static void kill_now(struct sim *sim, const struct sim_event *event)
{
    (void)event;
    outage_kill(sim, FAULT_SERVER_KILL);
}

void outage_kill_later(struct sim *sim)
{
    if (sim_chance(sim, 400))
        sim_at(sim, sim->now_us + NODE_LOST_US + SECOND_US + sim_draw(sim, 15 * SECOND_US),
               (struct sim_event){.run = kill_now});
}

void outage_pause(struct sim *sim)
{
    uint64_t us = sim_draw(sim, sim_chance(sim, 500) ? 40 * SECOND_US : 4 * SECOND_US);

    if (!server_is_ready(sim))
        return;
    sim_note(sim, "the server is stopped for %.1f s", (double)us / 1e6);
    oracle_time(sim);
    fault_pause_until(&sim->server.paused_until_us, sim->now_us + us);
}

void outage_set_clock(struct sim *sim)
{
    int64_t by_ms = (int64_t)sim_draw(sim, 2 * 86400000ull) - 86400000;

    sim_note(sim, "the server's wall clock is set by %lld s", (long long)(by_ms / 1000));
    sim->server.wall_ms += by_ms;
    oracle_wall_clock_set(sim);
}
