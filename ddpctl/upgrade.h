/* Plans the upgrade of a cluster to the version of this ddpctl: the order of programs, what each step does to running
 * jobs, and what makes it unsafe. Pure; verb_upgrade.c collects the facts and shows the plan.
 *
 * The order: a copy of the store, if its schema changes; the servers, standbys first; the nodes one after another,
 * those without jobs first; then clients on other machines. Programs of neighbouring protocols understand one
 * another, so every intermediate state works. */
#ifndef DDPCTL_UPGRADE_H
#define DDPCTL_UPGRADE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/msg.h"

#define UPGRADE_NOTES_MAX 64u
#define UPGRADE_NOTE_BYTES 384u

/* The present state; texts are borrowed. */
struct upgrade_facts {
    const char *version; /* of this ddpctl: the target */
    uint32_t protocol, schema;
    const char *server_version, *server_name;
    uint32_t server_protocol, server_schema; /* 0: not known */
    bool store_is_low;
    const struct part_server *servers; /* servers on one etcd; none: only the server server_name */
    uint32_t server_count;
    const struct part_node *nodes; /* lost ones too */
    uint32_t node_count;
    uint32_t jobs_running, jobs_moving; /* jobs_moving: those that are starting or restarting */
};

enum upgrade_kind {
    UPGRADE_BACKUP,
    UPGRADE_STANDBY,
    UPGRADE_SERVER,
    UPGRADE_NODE,
    UPGRADE_CLIENTS
};

struct upgrade_step {
    enum upgrade_kind kind;
    const char *name, *version; /* version: the present one; empty: not known */
    bool stops_jobs;            /* false: jobs are not affected */
};

struct upgrade_plan {
    const struct upgrade_facts *facts;
    struct upgrade_step *steps; /* [step_count]; room for upgrade_steps_max() */
    uint32_t step_count;
    uint32_t problem_count, warning_count;                /* how many notes are kept */
    char problems[UPGRADE_NOTES_MAX][UPGRADE_NOTE_BYTES]; /* why it is not safe */
    char warnings[UPGRADE_NOTES_MAX][UPGRADE_NOTE_BYTES];
};

uint32_t upgrade_steps_max(const struct upgrade_facts *facts);
/* Fills all of `plan` except `steps`, which the caller provides. */
void upgrade_make(struct upgrade_plan *plan, const struct upgrade_facts *facts);
static inline bool upgrade_is_safe(const struct upgrade_plan *plan)
{
    return plan->problem_count == 0;
}
void upgrade_text(const struct upgrade_plan *plan, struct buf *out);
void upgrade_json(const struct upgrade_plan *plan, struct buf *out);

#endif
