/* The nodes: who is here, what they say is on them, when silence means lost. */
#include "rendezvous/rdzv_state.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

uint32_t bits_count(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

struct node *roster_find(const struct rdzv *rdzv, const char *name)
{
    for (uint32_t i = 0; i < rdzv->options.nodes_max; i++)
        if (rdzv->nodes[i].used && strcmp(rdzv->nodes[i].name, name) == 0)
            return &rdzv->nodes[i];
    return NULL;
}

struct node *roster_find_conn(const struct rdzv *rdzv, uint64_t conn)
{
    for (uint32_t i = 0; i < rdzv->options.nodes_max; i++)
        if (rdzv->nodes[i].used && rdzv->nodes[i].conn == conn)
            return &rdzv->nodes[i];
    return NULL;
}

static bool is_in_use(const struct rdzv *rdzv, const struct node *node)
{
    if (node->conn != 0)
        return true;
    for (uint32_t i = 0; i < rdzv->job_count; i++)
        if (job_part_on(&rdzv->jobs[rdzv->order[i]], node->name) != UINT32_MAX)
            return true;
    return false;
}

/* A free entry, or the one of the node that was lost longest ago. NULL: full. */
static struct node *place_for_new(struct rdzv *rdzv)
{
    struct node *oldest = NULL;

    for (uint32_t i = 0; i < rdzv->options.nodes_max; i++) {
        struct node *node = &rdzv->nodes[i];

        if (!node->used)
            return node;
        if (node->state != NODE_LOST || is_in_use(rdzv, node))
            continue;
        if (oldest == NULL || node->beat_at_us < oldest->beat_at_us)
            oldest = node;
    }
    return oldest;
}

static struct node *add(struct rdzv *rdzv, const char *name)
{
    struct node *node = place_for_new(rdzv);

    if (node == NULL)
        return NULL;
    memset(node, 0, sizeof *node);
    node->used = true;
    (void)snprintf(node->name, sizeof node->name, "%s", name);
    slots_apply_drains(rdzv, node);
    return node;
}

static void refuse(struct rdzv *rdzv, uint64_t conn, const char *text)
{
    struct rdzv_action *action = rdzv_act(rdzv, RDZV_CLOSE_NODE);

    action->conn = conn;
    action->text = text;
}

void roster_clear(struct rdzv *rdzv, struct node *node, uint64_t job_id, uint32_t generation,
                  enum shim_phase phase)
{
    struct rdzv_action *action;

    if (node->conn == 0)
        return;
    action = rdzv_act(rdzv, phase == SHIM_ENDED ? RDZV_SEND_FORGET : RDZV_SEND_STOP);
    action->conn = node->conn;
    action->job_id = job_id;
    action->generation = generation;
    action->signal = SIGKILL;
    action->text = rdzv_text(rdzv, "generation %u of job %llu is over", generation,
                             (unsigned long long)job_id);
}

/* The part of an active job that this listed shim is; NULL: it is stale. */
static struct job *job_of(struct rdzv *rdzv, const struct node *node, uint64_t job_id,
                          uint32_t generation, uint32_t *part)
{
    struct job *job = rdzv_find_job(rdzv, job_id);

    if (job == NULL || job->ended || job->record.generation != generation)
        return NULL;
    *part = job_part_on(job, node->name);
    if (*part == UINT32_MAX || job->parts[*part].is_lost)
        return NULL;
    return job;
}

static bool is_listed(const struct node *node, const struct job *job)
{
    for (uint32_t i = 0; i < node->shim_count; i++)
        if (node->shims[i].job_id == job->record.job_id &&
            node->shims[i].generation == job->record.generation)
            return true;
    return false;
}

/* Compare what a node says is there with what should be, and order what closes the gap. */
static void reconcile(struct rdzv *rdzv, struct node *node, const struct part_beat_shim *shims,
                      uint32_t count)
{
    uint32_t part;

    if (count > SHIMS_PER_NODE_MAX)
        count = SHIMS_PER_NODE_MAX;
    node->shim_count = count;
    if (count > 0)
        memcpy(node->shims, shims, count * sizeof *shims);
    for (uint32_t i = 0; i < count; i++) {
        const struct part_beat_shim *shim = &node->shims[i];
        struct job *job = job_of(rdzv, node, shim->job_id, shim->generation, &part);

        if (job == NULL)
            roster_clear(rdzv, node, shim->job_id, shim->generation, shim->phase);
        else
            generation_listed(rdzv, job, part, shim->phase);
    }
    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        struct job *job = &rdzv->jobs[rdzv->order[i]];

        part = job->ended ? UINT32_MAX : job_part_on(job, node->name);
        if (part != UINT32_MAX && !is_listed(node, job))
            generation_unlisted(rdzv, job, part);
    }
}

static void heard(struct rdzv *rdzv, struct node *node)
{
    if (node->state != NODE_UP)
        rdzv_note(rdzv, NULL, rdzv_text(rdzv, "node %s is up", node->name));
    node->state = NODE_UP;
    node->has_beat = true;
    node->beat_at_us = rdzv->now_us;
    node->lost_at_us = rdzv->now_us + rdzv->options.lost_us;
}

/* Two processes with one name: the living one keeps it, a silent one is replaced. True: hello is
 * refused. */
static bool is_taken(struct rdzv *rdzv, const struct node *node, uint64_t conn,
                     const struct msg_node_hello *hello)
{
    if (node->conn == 0 || node->conn == conn)
        return false;
    if (node->instance != hello->instance &&
        rdzv->now_us < node->beat_at_us + rdzv->options.suspect_us) {
        refuse(rdzv, conn,
               rdzv_text(rdzv,
                         "a node named %s is connected already (pid %u); choose another --name",
                         node->name, node->pid));
        return true;
    }
    refuse(rdzv, node->conn, "replaced by a newer connection of the same node");
    return false;
}

void roster_hello(struct rdzv *rdzv, uint64_t conn, const struct msg_node_hello *hello)
{
    struct node *node = roster_find(rdzv, hello->name);
    struct rdzv_action *action;

    if (node != NULL && is_taken(rdzv, node, conn, hello))
        return;
    if (node == NULL)
        node = add(rdzv, hello->name);
    if (node == NULL) {
        refuse(rdzv, conn, "the server's table of nodes is full");
        return;
    }
    if (!node->has_beat)
        node->state = NODE_SUSPECT; /* so that heard() notes it */
    node->conn = conn;
    node->instance = hello->instance;
    node->pid = hello->pid;
    node->slots = hello->slots;
    node->gpus = hello->gpus;
    (void)snprintf(node->boot_id, sizeof node->boot_id, "%s", hello->boot_id);
    (void)snprintf(node->address, sizeof node->address, "%s", hello->address);
    (void)snprintf(node->version, sizeof node->version, "%s", hello->version);
    heard(rdzv, node);
    action = rdzv_act(rdzv, RDZV_SEND_WELCOME);
    action->conn = conn;
    slots_take(rdzv, node, hello->closed.items, hello->closed.count);
    reconcile(rdzv, node, hello->shims.items, hello->shims.count);
}

void roster_beat(struct rdzv *rdzv, struct node *node, const struct msg_beat *beat)
{
    struct rdzv_action *action = rdzv_act(rdzv, RDZV_SEND_BEAT_ACK);

    action->conn = node->conn;
    action->sent_us = beat->sent_us;
    heard(rdzv, node);
    slots_take(rdzv, node, beat->closed.items, beat->closed.count);
    reconcile(rdzv, node, beat->shims.items, beat->shims.count);
}

void roster_phase(struct rdzv *rdzv, struct node *node, uint64_t job_id, uint32_t generation,
                  enum shim_phase phase)
{
    for (uint32_t i = 0; i < node->shim_count; i++) {
        struct part_beat_shim *shim = &node->shims[i];

        if (shim->job_id != job_id || shim->generation != generation)
            continue;
        if (phase == SHIM_ENDED && shim->phase != SHIM_ENDED)
            slots_left(rdzv, node, shim->slot_mask);
        shim->phase = phase;
    }
}

void roster_closed(struct rdzv *rdzv, struct node *node)
{
    node->conn = 0;
    if (node->state != NODE_UP)
        return;
    node->state = NODE_SUSPECT;
    rdzv_note(rdzv, NULL, rdzv_text(rdzv, "node %s: its connection closed", node->name));
}

/* A node that a stored job runs on: it may be training without us. It gets a whole lease to call.
 */
void roster_expect(struct rdzv *rdzv, const char *name)
{
    struct node *node = roster_find(rdzv, name);
    uint64_t wait_us = rdzv->options.lease_us > rdzv->options.lost_us ? rdzv->options.lease_us
                                                                      : rdzv->options.lost_us;

    if (node == NULL)
        node = add(rdzv, name);
    if (node == NULL || node->has_beat)
        return;
    node->state = NODE_SUSPECT;
    node->beat_at_us = rdzv->now_us;
    node->lost_at_us = rdzv->now_us + wait_us;
}

static void lose(struct rdzv *rdzv, struct node *node)
{
    const char *cause =
        rdzv_text(rdzv, "node %s was lost: silent for %llu s", node->name,
                  (unsigned long long)((rdzv->now_us - node->beat_at_us) / 1000000));

    node->state = NODE_LOST;
    rdzv_note(rdzv, NULL, cause);
    if (node->conn != 0)
        refuse(rdzv, node->conn, "silent for too long");
    node->conn = 0;
    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        struct job *job = &rdzv->jobs[rdzv->order[i]];
        uint32_t part = job->ended ? UINT32_MAX : job_part_on(job, node->name);

        if (part != UINT32_MAX)
            generation_part_lost(rdzv, job, part, cause);
    }
}

void roster_tick(struct rdzv *rdzv)
{
    for (uint32_t i = 0; i < rdzv->options.nodes_max; i++) {
        struct node *node = &rdzv->nodes[i];
        uint64_t suspect_at_us = node->beat_at_us + rdzv->options.suspect_us;

        if (!node->used || node->state == NODE_LOST)
            continue;
        if (rdzv->now_us >= node->lost_at_us) {
            lose(rdzv, node);
            continue;
        }
        rdzv_wake_at(rdzv, node->lost_at_us);
        if (node->state != NODE_UP)
            continue;
        if (rdzv->now_us >= suspect_at_us)
            node->state = NODE_SUSPECT;
        else
            rdzv_wake_at(rdzv, suspect_at_us);
    }
}

/* Slots that nothing of ours is on and nothing is meant for, and that are not closed. */
uint64_t roster_free_mask(const struct rdzv *rdzv, const struct node *node)
{
    uint64_t taken = slots_closed_mask(node);

    for (uint32_t i = 0; i < node->shim_count; i++)
        if (node->shims[i].phase != SHIM_ENDED)
            taken |= node->shims[i].slot_mask;
    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        const struct job *job = &rdzv->jobs[rdzv->order[i]];
        uint32_t part = job->ended ? UINT32_MAX : job_part_on(job, node->name);

        if (part != UINT32_MAX && !job->parts[part].is_lost)
            taken |= job->record.parts[part].slot_mask;
    }
    return ~taken & (node->slots >= 64 ? UINT64_MAX : (1ull << node->slots) - 1);
}
