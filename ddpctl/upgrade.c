#include "ddpctl/upgrade.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/msg_version.h"
#include "ddpctl/json_parts.h"

uint32_t upgrade_steps_max(const struct upgrade_facts *facts)
{
    return facts->node_count + facts->server_count + 3;
}

__attribute__((format(printf, 3, 4))) static void note(char (*notes)[UPGRADE_NOTE_BYTES],
                                                       uint32_t *count, const char *format, ...)
{
    va_list args;

    if (*count == UPGRADE_NOTES_MAX)
        return;
    va_start(args, format);
    (void)vsnprintf(notes[(*count)++], sizeof notes[0], format, args);
    va_end(args);
}

#define PROBLEM(plan, ...) note((plan)->problems, &(plan)->problem_count, __VA_ARGS__)
#define WARNING(plan, ...) note((plan)->warnings, &(plan)->warning_count, __VA_ARGS__)

static void add(struct upgrade_plan *plan, struct upgrade_step step)
{
    plan->steps[plan->step_count++] = step;
}

static bool is_there(const struct upgrade_facts *facts, const char *version, uint32_t protocol)
{
    return strcmp(version, facts->version) == 0 && (protocol == 0 || protocol == facts->protocol);
}

/* Whether a program of `protocol` understands the target version. 0: not known; counts as yes. */
static bool is_near(const struct upgrade_facts *facts, uint32_t protocol)
{
    return protocol == 0 || msg_protocol_is_near(facts->protocol, protocol);
}

/* -- the servers -- */

static void plan_store(struct upgrade_plan *plan)
{
    const struct upgrade_facts *facts = plan->facts;

    if (facts->server_schema > facts->schema)
        PROBLEM(plan,
                "the store has schema %u, and version %s writes %u: a rendezvous of that version "
                "does not take it; restore the backup that was made before the schema went up",
                facts->server_schema, facts->version, facts->schema);
    if (facts->server_schema == 0 || facts->server_schema >= facts->schema)
        return;
    add(plan, (struct upgrade_step){.kind = UPGRADE_BACKUP, .name = "store", .version = ""});
    WARNING(plan,
            "the schema of the store goes from %u to %u: the way back to version %s is the backup "
            "of step 1 alone",
            facts->server_schema, facts->schema, facts->server_version);
    if (facts->store_is_low)
        PROBLEM(plan, "the disk of the store is nearly full: the new schema may not fit");
}

static void plan_servers(struct upgrade_plan *plan)
{
    const struct upgrade_facts *facts = plan->facts;

    if (!is_near(facts, facts->server_protocol))
        PROBLEM(plan,
                "the server speaks protocol %u, and version %s speaks %u: upgrade to a version of "
                "protocol %u first",
                facts->server_protocol, facts->version, facts->protocol,
                facts->server_protocol < facts->protocol ? facts->server_protocol + 1
                                                         : facts->server_protocol - 1);
    if (is_there(facts, facts->server_version, facts->server_protocol))
        return;
    for (uint32_t i = 0; i < facts->server_count; i++)
        if (!facts->servers[i].leads)
            add(plan, (struct upgrade_step){.kind = UPGRADE_STANDBY,
                                            .name = facts->servers[i].address,
                                            .version = ""});
    add(plan, (struct upgrade_step){.kind = UPGRADE_SERVER,
                                    .name = facts->server_name,
                                    .version = facts->server_version});
}

/* -- the nodes -- */

static uint32_t used_slots(const struct part_node *node)
{
    const uint32_t open = node->slots_free + node->slots_closed;

    return node->slots > open ? node->slots - open : 0;
}

static void look_at_node(struct upgrade_plan *plan, const struct part_node *node)
{
    const struct upgrade_facts *facts = plan->facts;

    if (!is_near(facts, node->protocol))
        PROBLEM(plan,
                "%s speaks protocol %u, and a server of version %s speaks %u: upgrade this node to "
                "a version between them first",
                node->name, node->protocol, facts->version, facts->protocol);
    if (node->state != NODE_UP) {
        WARNING(plan, "%s is %s: upgrade it before it comes back, or soon after", node->name,
                node_state_name(node->state));
        return;
    }
    if (node->drained)
        WARNING(plan, "%s was drained by %s (%s), and stays so", node->name, node->drained_by,
                node->drain_reason);
    else if (node->slots_closed > 0)
        WARNING(plan, "%s: %u of its slots are closed, which a restart of launcherd does not mend",
                node->name, node->slots_closed);
    if (node->drains_on_term && used_slots(node) > 0)
        WARNING(plan,
                "%s runs with --drain-on-term: its jobs are stopped with their grace, and go on "
                "from their newest checkpoint, elsewhere where there is room",
                node->name);
}

/* It was of the target version when it was last heard. It may come back as a build of that version with other
 * messages. */
static void look_at_build(struct upgrade_plan *plan, const struct part_node *node)
{
    if (node->state != NODE_UP)
        WARNING(
            plan,
            "%s is %s, and was version %s: if it is of another build since, it will be refused, "
            "and stands here when it calls",
            node->name, node_state_name(node->state), node->version);
}

static void plan_nodes(struct upgrade_plan *plan, bool with_jobs)
{
    const struct upgrade_facts *facts = plan->facts;

    for (uint32_t i = 0; i < facts->node_count; i++) {
        const struct part_node *node = &facts->nodes[i];

        if ((used_slots(node) > 0) != with_jobs)
            continue;
        if (node->refused_ms != 0 && node->state == NODE_UP)
            PROBLEM(plan, "another launcherd of the name %s, which is up, is refused: %s",
                    node->name, node->notice);
        else if (node->refused_ms != 0)
            PROBLEM(plan, "%s is refused: %s", node->name, node->notice);
        if (node->refused_ms != 0 && node->state != NODE_UP) {
            add(plan, (struct upgrade_step){
                          .kind = UPGRADE_NODE, .name = node->name, .version = node->version});
            continue;
        }
        if (is_there(facts, node->version, node->protocol)) {
            look_at_build(plan, node);
            continue;
        }
        look_at_node(plan, node);
        if (node->state == NODE_UP)
            add(plan, (struct upgrade_step){.kind = UPGRADE_NODE,
                                            .name = node->name,
                                            .version = node->version,
                                            .stops_jobs = with_jobs && node->drains_on_term});
    }
}

void upgrade_make(struct upgrade_plan *plan, const struct upgrade_facts *facts)
{
    plan->facts = facts;
    plan->step_count = plan->problem_count = plan->warning_count = 0;
    plan_store(plan);
    plan_servers(plan);
    plan_nodes(plan, false);
    plan_nodes(plan, true);
    if (plan->step_count == 0)
        return;
    add(plan, (struct upgrade_step){.kind = UPGRADE_CLIENTS, .name = "clients", .version = ""});
    if (facts->jobs_moving > 0)
        WARNING(plan,
                "%u jobs start or restart at the moment; a restart of the server delays them "
                "for its length",
                facts->jobs_moving);
}

/* -- as text and JSON -- */

static const char *const kinds[] = {[UPGRADE_BACKUP] = "backup",
                                    [UPGRADE_STANDBY] = "standby",
                                    [UPGRADE_SERVER] = "server",
                                    [UPGRADE_NODE] = "node",
                                    [UPGRADE_CLIENTS] = "clients"};

static const char *effect(const struct upgrade_plan *plan, const struct upgrade_step *step)
{
    if (step->stops_jobs)
        return "its jobs are stopped and go on elsewhere";
    if (step->kind == UPGRADE_SERVER)
        return plan->facts->server_count > 0 ? "none: another server leads within seconds"
                                             : "none, if the server is back within the lease (60s)";
    return step->kind == UPGRADE_NODE ? "none: their shims go on" : "none";
}

static const char *action(const struct upgrade_plan *plan, const struct upgrade_step *step)
{
    switch (step->kind) {
    case UPGRADE_BACKUP:
        return plan->facts->server_count > 0 ? "old programs: ddpctl backup --store URL FILE"
                                             : "old programs: ddpctl backup --state-dir DIR FILE";
    case UPGRADE_STANDBY:
    case UPGRADE_SERVER:
        return "install there; systemctl restart rendezvous";
    case UPGRADE_NODE:
        return "install there; systemctl restart launcherd";
    case UPGRADE_CLIENTS:
        break;
    }
    return "install where users have ddpctl";
}

/* Names need no escape: a node's name is checked by its type, an address is that of our server. */
static void write_steps(const struct upgrade_plan *plan, struct buf *out)
{
    int width = 4;

    for (uint32_t i = 0; i < plan->step_count; i++)
        if ((int)strlen(plan->steps[i].name) > width)
            width = (int)strlen(plan->steps[i].name);
    buf_printf(out, "STEP  WHAT     %-*s  NOW       %-48s  RUNNING JOBS\n", width, "NAME", "DO");
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const struct upgrade_step *step = &plan->steps[i];

        buf_printf(out, "%4u  %-7s  %-*s  %-8s  %-48s  %s\n", i + 1, kinds[step->kind], width,
                   step->name, step->version[0] != '\0' ? step->version : "-", action(plan, step),
                   effect(plan, step));
    }
}

void upgrade_text(const struct upgrade_plan *plan, struct buf *out)
{
    const struct upgrade_facts *facts = plan->facts;

    for (uint32_t i = 0; i < plan->problem_count; i++)
        buf_printf(out, "not safe: %s\n", plan->problems[i]);
    for (uint32_t i = 0; i < plan->warning_count; i++)
        buf_printf(out, "note: %s\n", plan->warnings[i]);
    if (plan->step_count == 0) {
        buf_printf(out, "%s: the server and all nodes that are up are version %s\n",
                   upgrade_is_safe(plan) ? "nothing to do" : "no step mends that", facts->version);
        return;
    }
    if (plan->problem_count + plan->warning_count > 0)
        buf_printf(out, "\n");
    write_steps(plan, out);
    if (plan->steps[0].kind == UPGRADE_BACKUP)
        buf_printf(out, "\n%s is what the server has as its own: see how it is started%s.\n",
                   facts->server_count > 0 ? "URL" : "DIR",
                   facts->server_count > 0 ? "" : ", and run the backup on its machine");
    buf_printf(out,
               "\nOne step after the other: after each, `ddpctl nodes` and `ddpctl version` show "
               "that it is back, as version %s.\n",
               facts->version);
    buf_printf(out,
               upgrade_is_safe(plan) ? "Safe: %u running jobs stay what they are%s.\n"
                                     : "Not safe: see above (%u jobs run%s).\n",
               facts->jobs_running,
               upgrade_is_safe(plan) && plan->warning_count > 0 ? ", but for the notes above" : "");
}

static void add_notes(cJSON *object, const char *name, const char (*notes)[UPGRADE_NOTE_BYTES],
                      uint32_t count)
{
    cJSON *array = cJSON_AddArrayToObject(object, name);

    for (uint32_t i = 0; i < count; i++)
        (void)cJSON_AddItemToArray(array, cJSON_CreateString(notes[i]));
}

void upgrade_json(const struct upgrade_plan *plan, struct buf *out)
{
    cJSON *object = object_new(), *upgrade = cJSON_AddObjectToObject(object, "upgrade"), *steps;

    add_text(upgrade, "version", plan->facts->version);
    add_number(upgrade, "protocol", plan->facts->protocol);
    (void)cJSON_AddBoolToObject(upgrade, "safe", upgrade_is_safe(plan));
    steps = cJSON_AddArrayToObject(upgrade, "steps");
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const struct upgrade_step *step = &plan->steps[i];
        cJSON *item = cJSON_CreateObject();

        add_text(item, "kind", kinds[step->kind]);
        add_text(item, "name", step->name);
        add_text(item, "version", step->version);
        (void)cJSON_AddBoolToObject(item, "stops_jobs", step->stops_jobs);
        add_text(item, "do", action(plan, step));
        (void)cJSON_AddItemToArray(steps, item);
    }
    add_notes(upgrade, "problems", plan->problems, plan->problem_count);
    add_notes(upgrade, "notes", plan->warnings, plan->warning_count);
    object_print(object, out);
}
