/* Names that come back from elsewhere: another machine or another state directory says that it is a
 * node. */
#include "tests/sim/sim.h"

#include <signal.h>
#include <stdio.h>

#include "tests/sim/oracle.h"

/* In every eighth run the nodes say too little: no ids, as the version before, or no machine's id, as
 * in a container. */
static bool has_machines(const struct sim *sim)
{
    return sim->seed % 8 != 5;
}

static bool has_states(const struct sim *sim)
{
    return sim->tell_ids || sim->seed % 16 != 5;
}

void twin_identity(const struct sim *sim, uint32_t node, char machine_id[IDENTITY_BYTES_MAX],
                   char state_id[IDENTITY_BYTES_MAX])
{
    const struct sim_node *at = &sim->nodes[node];

    machine_id[0] = state_id[0] = '\0';
    if (has_machines(sim))
        (void)snprintf(machine_id, IDENTITY_BYTES_MAX, "machine%u.%u", node, at->installs);
    if (has_states(sim))
        (void)snprintf(state_id, IDENTITY_BYTES_MAX, "state%u.%u", node, at->states);
}

/* What the other process is: a program of the version before, which says no ids; another machine; a
 * copy of the node's state directory on another machine; another state directory on the same one; a container with the
 * machine's id and a boot's id of its own, whose kernel has run for long; a machine with a copy of the node's disk, ids
 * and all, which has run for long, too. */
enum twin_kind { TWIN_SILENT, TWIN_MACHINE, TWIN_COPY, TWIN_STATE, TWIN_CONTAINER, TWIN_CLONE };

/* The silent one is the one that is taken at once. */
static enum twin_kind kind_of(uint64_t instance)
{
    static const enum twin_kind kinds[] = {TWIN_SILENT, TWIN_SILENT, TWIN_MACHINE,
                                           TWIN_COPY,   TWIN_STATE,  TWIN_CONTAINER};

    return kinds[instance % 6] == TWIN_COPY && instance / 6 % 2 == 1 ? TWIN_CLONE
                                                                     : kinds[instance % 6];
}

static void choose_ids(const struct sim *sim, uint32_t node, enum twin_kind kind,
                       char machine_id[IDENTITY_BYTES_MAX], char state_id[IDENTITY_BYTES_MAX])
{
    machine_id[0] = state_id[0] = '\0';
    if (kind == TWIN_SILENT)
        return;
    twin_identity(sim, node, machine_id, state_id);
    if (kind == TWIN_MACHINE || kind == TWIN_COPY || machine_id[0] == '\0')
        (void)snprintf(machine_id, IDENTITY_BYTES_MAX, "elsewhere");
    if ((kind != TWIN_COPY && kind != TWIN_CLONE) || state_id[0] == '\0')
        (void)snprintf(state_id, IDENTITY_BYTES_MAX, "another");
}

/* Says hello as this node. Returns the connection. */
static uint32_t say_hello(struct sim *sim, uint32_t node, uint64_t instance)
{
    const enum twin_kind kind = kind_of(instance);
    char name[NODE_NAME_BYTES_MAX], boot_id[64];
    char machine_id[IDENTITY_BYTES_MAX], state_id[IDENTITY_BYTES_MAX];
    struct msg msg = {.type = MSG_TYPE_NODE_HELLO};
    const uint32_t conn = net_open(sim, true, node, 0);

    node_name(name, node);
    choose_ids(sim, node, kind, machine_id, state_id);
    (void)snprintf(boot_id, sizeof boot_id, "boot%u", sim->nodes[node].boots);
    sim_note(sim, "another process says that it is %s, on machine \"%s\" with state \"%s\"", name,
             machine_id, state_id);
    sim->conns[conn].is_impostor = true;
    sim->conns[conn].owner = UINT32_MAX - conn;
    msg.node_hello = (struct msg_node_hello){
        .protocol = PROTOCOL_VERSION,
        .version = "0",
        .name = name,
        .boot_id = kind == TWIN_STATE ? boot_id : "other",
        .machine_id = machine_id,
        .state_id = state_id,
        .instance = instance,
        .up_us = sim->now_us,
        .pid = 4711,
        .address = "127.0.0.2",
        .slots = sim->slots,
    };
    net_send(sim, conn, true, &msg);
    return conn;
}

void twin_impersonate(struct sim *sim)
{
    const uint32_t node = (uint32_t)sim_draw(sim, sim->node_count);

    if (sim->server.alive)
        (void)say_hello(sim, node, sim_draw(sim, UINT64_MAX));
}

/* -- one that stays -- */

#define REIGN_US (8 * SECOND_US) /* less than the 15 s for which the first one tries to come back */

/* number: the twin. It tries until it is taken, or time is over. */
static void try_again(struct sim *sim, const struct sim_event *event)
{
    struct sim_twin *twin = &sim->twins[event->number];
    uint32_t conn;

    if (sim->now_us >= twin->until_us || twin->conn != 0)
        return;
    if (!sim->server.alive) {
        sim_at(sim, sim->now_us + SECOND_US, *event);
        return;
    }
    conn = say_hello(sim, twin->node, twin->instance);
    sim->conns[conn].twin = event->number + 1;
    twin->conn = conn;
}

static void beats(struct sim *sim, const struct sim_event *event)
{
    const struct sim_twin *twin = &sim->twins[event->number];
    struct msg msg = {.type = MSG_TYPE_BEAT};

    if (twin->conn != event->conn || !sim->conns[event->conn].to_near.open)
        return;
    if (sim->now_us >= twin->until_us) {
        sim_note(sim, "the other node%u ends", twin->node);
        net_close(sim, event->conn, true);
        return;
    }
    msg.beat.sent_us = sim->now_us;
    net_send(sim, event->conn, true, &msg);
    sim_at(sim, sim->now_us + SECOND_US, *event);
}

/* Like launcherd, for a shim that it does not know. */
static void deny(struct sim *sim, uint32_t conn, uint64_t job_id, uint32_t generation)
{
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};

    msg.shim_report = (struct msg_shim_report){
        .job_id = job_id,
        .generation = generation,
        .revision = UINT32_MAX,
        .phase = SHIM_ENDED,
        .failed_rank = -1,
        .failed_class = FAILURE_NODE,
        .cause = "this node does not know the job",
    };
    oracle_denied(sim, job_id, generation);
    net_send(sim, conn, true, &msg);
}

/* A rank of a job that is on this node, too, dies elsewhere: its generation is stopped while the other process has the
 * name. */
static void fail_elsewhere(struct sim *sim, const struct sim_event *event)
{
    for (uint32_t n = 0; n < sim->node_count; n++)
        for (uint32_t s = 0; s < SIM_SHIMS_MAX; s++) {
            const struct sim_shim *shim = &sim->nodes[n].shims[s];

            if (n == event->node || !shim->used || shim->is_orphan || !shim->workers[0].alive ||
                node_find(sim, event->node, shim->job_id, shim->generation) == NULL)
                continue;
            sim_note(sim, "node%u: a worker of job %llu g%u dies", n,
                     (unsigned long long)shim->job_id, shim->generation);
            worker_end(sim, n, s, 0, 1000 + SIGSEGV);
            return;
        }
}

/* Another one of this node ends now, or has just ended: the first one would not get its name for too long. */
static bool has_twin(const struct sim *sim, uint32_t node)
{
    for (uint32_t i = 0; i < sim->twin_count; i++)
        if (sim->twins[i].node == node && sim->now_us < sim->twins[i].until_us + 2 * REIGN_US)
            return true;
    return false;
}

void twin_comes(struct sim *sim, uint32_t node)
{
    struct sim_twin *twin;

    if (sim->twin_count == SIM_TWINS_MAX || has_twin(sim, node))
        return;
    twin = &sim->twins[sim->twin_count++];
    *twin = (struct sim_twin){.node = node,
                              .instance = sim_draw(sim, UINT64_MAX),
                              .until_us = sim->now_us + sim_draw(sim, 100 * SECOND_US)};
    sim_at(sim, sim->now_us + SECOND_US,
           (struct sim_event){.run = try_again, .number = sim->twin_count - 1});
}

void twin_hears(struct sim *sim, uint32_t conn, const struct msg *msg)
{
    const uint32_t index = sim->conns[conn].twin;
    struct sim_twin *twin = index == 0 ? NULL : &sim->twins[index - 1];
    struct sim_event event = {.conn = conn, .number = index - 1};

    if (twin == NULL) {
        net_close(sim, conn, true);
    } else if (msg->type == MSG_TYPE_NODE_WELCOME) {
        if (twin->until_us > sim->now_us + REIGN_US)
            twin->until_us = sim->now_us + REIGN_US;
        event.run = beats;
        sim_at(sim, sim->now_us, event);
        if ((twin->instance >> 8 & 3) != 0)
            sim_at(sim, sim->now_us + (twin->instance >> 16 & 0xff) * SECOND_US / 128,
                   (struct sim_event){.run = fail_elsewhere, .node = twin->node});
    } else if (msg->type == MSG_TYPE_ERROR) {
        net_close(sim, conn, true);
        twin->conn = 0;
        event.run = try_again;
        sim_at(sim, sim->now_us + SECOND_US, event);
    } else if (msg->type == MSG_TYPE_STOP) {
        deny(sim, conn, msg->stop.job_id, msg->stop.generation);
    } else if (msg->type == MSG_TYPE_START && (twin->instance >> 9 & 1) != 0) {
        twin->until_us = sim->now_us; /* it ends without an answer */
    } else if (msg->type == MSG_TYPE_START) {
        deny(sim, conn, msg->start.job_id, msg->start.generation);
    }
}

/* -- a state directory that is lost -- */

static bool is_stuck(const struct sim *sim, const struct sim_shim *shim)
{
    if (!shim->alive || shim->pending || shim->has_orphans || sim->now_us < shim->paused_until_us)
        return true;
    for (uint32_t i = 0; i < shim->local_count; i++)
        if (sim->now_us < shim->workers[i].unkillable_until_us)
            return true;
    return false;
}

bool twin_lose_state(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];

    for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++)
        if (node->shims[i].used && is_stuck(sim, &node->shims[i]))
            return false;
    oracle_node_failed(sim, index);
    node_kill(sim, index);
    sim_note(sim, "node%u: its state directory is gone, and what it has started runs on", index);
    node->states++;
    node->slots = (struct slots_record){0};
    for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++) {
        node->shims[i].used = node->shims[i].used && node->shims[i].core.phase != SHIM_ENDED;
        node->shims[i].is_orphan = node->shims[i].used;
    }
    for (uint32_t i = 0; i < SIM_WORKERS_MAX; i++)
        node->gpus[i].is_faulty = false;
    return true;
}

bool twin_lose_part(struct sim *sim, uint32_t index, uint32_t shim)
{
    struct sim_shim *lost = &sim->nodes[index].shims[shim];

    /* Of its newest job a node knows that it had a part. Of others it has a record (docs/architecture.md, "Whose job"). */
    if (is_stuck(sim, lost) || sim->nodes[index].seen.jobs[0].job_id != lost->job_id ||
        sim->nodes[index].seen.jobs[0].generation != lost->generation)
        return false;
    node_kill(sim, index);
    sim_note(sim, "node%u: the run directory of job %llu g%u is gone, and its shim", index,
             (unsigned long long)lost->job_id, lost->generation);
    lost->is_orphan = true;
    shim_kill(sim, index, shim);
    return true;
}

static void orphan_gone(struct sim *sim, const struct sim_event *event)
{
    struct sim_shim *shim = &sim->nodes[event->node].shims[event->shim];

    if (!shim->used || shim->serial != event->incarnation)
        return;
    if (shim_has_workers(shim))
        sim_at(sim, sim->now_us + SECOND_US / 10, *event);
    else
        shim->used = false;
}

void twin_orphan_ends(struct sim *sim, uint32_t node, uint32_t shim)
{
    sim_at(sim, sim->now_us + 1000,
           (struct sim_event){.run = orphan_gone,
                              .node = node,
                              .shim = shim,
                              .incarnation = sim->nodes[node].shims[shim].serial});
}
