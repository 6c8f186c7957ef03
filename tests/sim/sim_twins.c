/* Names that come back from elsewhere: another machine or another state directory says that it is a
 * node. */
#include "tests/sim/sim.h"

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
    return sim->seed % 16 != 5;
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
 * copy of the node's state directory on another machine; another state directory on the same one. */
enum twin_kind { TWIN_SILENT, TWIN_MACHINE, TWIN_COPY, TWIN_STATE, TWIN_KINDS };

static void choose_ids(const struct sim *sim, uint32_t node, enum twin_kind kind,
                       char machine_id[IDENTITY_BYTES_MAX], char state_id[IDENTITY_BYTES_MAX])
{
    machine_id[0] = state_id[0] = '\0';
    if (kind == TWIN_SILENT)
        return;
    twin_identity(sim, node, machine_id, state_id);
    if (kind != TWIN_STATE || machine_id[0] == '\0')
        (void)snprintf(machine_id, IDENTITY_BYTES_MAX, "elsewhere");
    if (kind != TWIN_COPY || state_id[0] == '\0')
        (void)snprintf(state_id, IDENTITY_BYTES_MAX, "another");
}

/* It leaves once it has an answer. */
void twin_impersonate(struct sim *sim)
{
    const uint32_t node = (uint32_t)sim_draw(sim, sim->node_count);
    char name[NODE_NAME_BYTES_MAX], boot_id[64];
    char machine_id[IDENTITY_BYTES_MAX], state_id[IDENTITY_BYTES_MAX];
    struct msg msg = {.type = MSG_TYPE_NODE_HELLO};
    const uint64_t instance = sim_draw(sim, UINT64_MAX);
    const enum twin_kind kind = (enum twin_kind)(instance % TWIN_KINDS);
    uint32_t conn;

    if (!sim->server.alive)
        return;
    node_name(name, node);
    choose_ids(sim, node, kind, machine_id, state_id);
    (void)snprintf(boot_id, sizeof boot_id, "boot%u", sim->nodes[node].boots);
    sim_note(sim, "another process says that it is %s, on machine \"%s\" with state \"%s\"", name,
             machine_id, state_id);
    conn = net_open(sim, true, node, 0);
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
        .pid = 4711,
        .address = "127.0.0.2",
        .slots = sim->slots,
    };
    net_send(sim, conn, true, &msg);
}

void twin_hears(struct sim *sim, uint32_t conn, const struct msg *msg)
{
    (void)msg;
    net_close(sim, conn, true);
}
