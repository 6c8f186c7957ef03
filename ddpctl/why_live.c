/* The text of `ddpctl why` for a job that waits, starts or runs: what it waits for, and where its ranks
 * stand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddpctl/escape.h"
#include "ddpctl/output.h"
#include "ddpctl/units.h"
#include "ddpctl/why.h"

#define NODES_SHOWN 8u
#define MOVES_SHOWN 4u
#define PYTHON_LINES_SHOWN 12u

static uint32_t world_of(const struct part_job *job)
{
    return job->nodes * job->nproc_per_node;
}

/* "0,4-7" */
static void rank_list(const bool *marks, uint32_t world, struct buf *out)
{
    const char *comma = "";

    for (uint32_t i = 0; i < world; i++) {
        uint32_t first = i;

        if (!marks[i])
            continue;
        while (i + 1 < world && marks[i + 1])
            i++;
        if (first == i)
            buf_printf(out, "%s%u", comma, first);
        else
            buf_printf(out, "%s%u-%u", comma, first, i);
        comma = ",";
    }
}

static void add_escaped(const char *text, struct buf *out)
{
    escape_text(text, strlen(text), out);
}

/* -- waiting ------------------------------------------------------------------------------------ */

/* Whether the job does not use the node now, since that has failed it. */
static bool is_avoided(const struct why *why, const struct part_node *node)
{
    const size_t length = strlen(node->name);

    for (const char *at = why->info->avoided; *at != '\0'; at += *at == ' ') {
        const size_t chars = strcspn(at, " ");

        if (chars == length && memcmp(at, node->name, length) == 0)
            return true;
        at += chars;
    }
    return false;
}

static void node_line(const struct why *why, const struct part_node *node, struct buf *out)
{
    const uint32_t wanted = why->info->jobs.items[0].nproc_per_node;

    buf_printf(out, "    %-12s ", node->name);
    if (node->drained)
        buf_printf(out, "drained by %s\n", node->drained_by);
    else if (node->state != NODE_UP)
        buf_printf(out, "%s\n", output_node_state(node));
    else if (is_avoided(why, node))
        buf_printf(out,
                   "not used for this job now, which it has failed: ddpctl node resume %s ends "
                   "that\n",
                   node->name);
    else if (node->slots < wanted)
        buf_printf(out, "too small: %u slot%s\n", node->slots, node->slots == 1 ? "" : "s");
    else
        buf_printf(out, "%u of %u slots free%s\n", node->slots_free, node->slots,
                   node->slots_free >= wanted ? ", enough for its share" : "");
}

void why_waits_text(const struct why *why, struct buf *out)
{
    const struct part_job *job = &why->info->jobs.items[0];
    const bool is_elastic = job->nodes_min < job->nodes_max;
    const uint32_t most = is_elastic ? job->nodes_max : job->nodes;
    uint32_t fit = 0;

    if (why->nodes == NULL)
        return;
    for (uint32_t i = 0; i < why->nodes->nodes.count; i++) {
        const struct part_node *node = &why->nodes->nodes.items[i];

        fit += node->state == NODE_UP && !node->drained &&
               node->slots_free >= job->nproc_per_node && !is_avoided(why, node);
    }
    buf_add_text(out, "  it wants ");
    if (is_elastic)
        buf_printf(out, "%u to ", job->nodes_min);
    buf_printf(out, "%u node%s with %u free slot%s%s; %u of %u nodes ha%s that now\n", most,
               most == 1 ? "" : "s", job->nproc_per_node, job->nproc_per_node == 1 ? "" : "s",
               most == 1 ? "" : " each", fit, why->nodes->nodes.count, fit == 1 ? "s" : "ve");
    for (uint32_t i = 0; i < why->nodes->nodes.count && i < NODES_SHOWN; i++)
        node_line(why, &why->nodes->nodes.items[i], out);
    if (why->nodes->nodes.count > NODES_SHOWN)
        buf_printf(out, "    ... and %u more: ddpctl nodes\n",
                   why->nodes->nodes.count - NODES_SHOWN);
}

/* -- the c10d store ----------------------------------------------------------------------------- */

static uint32_t mark_connected(const struct why_store *store, bool *marks, uint32_t world)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < store->client_count; i++) {
        int32_t rank = store->clients[i].rank;

        if (rank < 0 || (uint32_t)rank >= world || marks[rank])
            continue;
        marks[rank] = true;
        count++;
    }
    return count;
}

/* Marks the ranks that others wait for, by the keys that only those ranks set. */
static uint32_t mark_missing(const struct why_store *store, bool *marks, uint32_t world)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < store->client_count; i++)
        for (uint32_t k = 0; k < store->clients[i].missing_listed; k++) {
            struct buf text = {0};
            int32_t rank;

            (void)why_key_text(store->clients[i].missing[k], &rank, &text);
            buf_free(&text);
            if (rank < 0 || (uint32_t)rank >= world || marks[rank])
                continue;
            marks[rank] = true;
            count++;
        }
    return count;
}

static bool anyone_waits(const struct why_store *store)
{
    for (uint32_t i = 0; i < store->client_count; i++)
        if (store->clients[i].waits[0] != '\0')
            return true;
    return false;
}

uint32_t why_blockers(const struct why *why, bool *marks, uint32_t world)
{
    const struct why_store *store = &why->store;
    uint32_t count;

    if (store->address[0] == '\0' || !anyone_waits(store))
        return 0;
    count = mark_missing(store, marks, world);
    if (count > 0)
        return count;
    if (mark_connected(store, marks, world) == 0) {
        memset(marks, 0, world * sizeof *marks);
        return 0; /* no connection's rank is known */
    }
    for (uint32_t i = 0; i < world; i++) {
        marks[i] = !marks[i];
        count += marks[i];
    }
    return count;
}

/* One line: the ranks that wait for the same first key as client `first`. */
static void waiting_line(const struct why_store *store, uint32_t first, bool *done, uint32_t world,
                         struct buf *out)
{
    const struct why_client *client = &store->clients[first];
    bool *marks = calloc(world, sizeof *marks);
    uint32_t unknown = 0, known = 0;
    struct buf key = {0};
    int32_t rank;

    for (uint32_t i = first; marks != NULL && i < store->client_count; i++) {
        const struct why_client *other = &store->clients[i];

        if (done[i] || strcmp(other->waits, client->waits) != 0 ||
            other->missing_listed != client->missing_listed ||
            (client->missing_listed > 0 && strcmp(other->missing[0], client->missing[0]) != 0))
            continue;
        done[i] = true;
        if (other->rank >= 0 && (uint32_t)other->rank < world) {
            known += !marks[other->rank];
            marks[other->rank] = true;
        } else {
            unknown++;
        }
    }
    buf_add_text(out, known == 1 ? "    rank " : known > 1 ? "    ranks " : "    ");
    if (marks != NULL)
        rank_list(marks, world, out);
    if (unknown > 0)
        buf_printf(out, "%s%u connection%s of unknown ranks", known > 0 ? " and " : "", unknown,
                   unknown == 1 ? "" : "s");
    buf_printf(out, " %s %.0f s for ", known + unknown == 1 ? "has waited" : "have waited",
               client->waits_s);
    if (client->missing_listed == 0) {
        buf_add_text(out, client->waits);
    } else if (why_key_text(client->missing[0], &rank, &key)) {
        buf_add(out, key.bytes, key.byte_count);
        buf_add_text(out, ": key ");
        add_escaped(client->missing[0], out);
    } else {
        buf_add_text(out, "key ");
        add_escaped(client->missing[0], out);
    }
    if (client->missing_count > 1)
        buf_printf(out, " and %u more", client->missing_count - 1);
    buf_add_text(out, "\n");
    buf_free(&key);
    free(marks);
}

static void waiting_lines(const struct why_store *store, uint32_t world, struct buf *out)
{
    bool *done = calloc(store->client_count + 1u, sizeof *done);

    for (uint32_t i = 0; done != NULL && i < store->client_count; i++)
        if (!done[i] && store->clients[i].waits[0] != '\0')
            waiting_line(store, i, done, world, out);
    free(done);
}

static void store_text(const struct why *why, struct buf *out)
{
    uint32_t world = world_of(&why->info->jobs.items[0]), connected;
    bool *marks = calloc(world, sizeof *marks);

    if (why->store.address[0] == '\0' || marks == NULL) {
        free(marks);
        return;
    }
    connected = mark_connected(&why->store, marks, world);
    buf_printf(out, "  c10d store on %s: ", why->store.address);
    if (why->store.client_count == 0)
        buf_add_text(out, "no rank has connected: no one is in init_process_group\n");
    else if (connected == 0)
        buf_printf(out, "%u connections, of ranks that are not known\n", why->store.client_count);
    else
        buf_printf(out, "%u of %u ranks connected, %.0f keys\n", connected, world, why->store.keys);
    if (connected > 0 && connected < world) {
        for (uint32_t i = 0; i < world; i++)
            marks[i] = !marks[i];
        buf_printf(out, "    not connected: rank%s ", world - connected == 1 ? "" : "s");
        rank_list(marks, world, out);
        buf_add_text(out, "\n");
    }
    waiting_lines(&why->store, world, out);
    free(marks);
}

/* -- a store of the program's own ---------------------------------------------------------------- */

bool why_may_dial(const struct why *why)
{
    const struct part_job *job = &why->info->jobs.items[0];
    uint32_t world = world_of(job), connected = 0;
    bool *marks;

    if (job->state != JOB_RUNNING || why->info->ran_us < (int64_t)WHY_DIAL_US || job->step > 0 ||
        why->info->moves.count > 0 || why->store.client_count >= world)
        return false;
    marks = calloc(world, sizeof *marks);
    if (marks != NULL)
        connected = mark_connected(&why->store, marks, world);
    free(marks);
    return connected < world;
}

/* Whether no answer comes from the job's own store. */
static bool is_of_job(const struct why *why, const struct why_dial *dial)
{
    return dial->to[0] != '\0' && strcmp(dial->to, why->store.address) == 0;
}

static void dial_lines(const struct why *why, bool of_job, struct buf *out)
{
    uint32_t world = world_of(&why->info->jobs.items[0]), count = 0;
    const struct why_dial *first = NULL;
    bool *marks = calloc(world, sizeof *marks);

    for (uint32_t i = 0; marks != NULL && i < why->dial_count; i++) {
        if (why->dials[i].rank >= world || is_of_job(why, &why->dials[i]) != of_job)
            continue;
        first = first != NULL ? first : &why->dials[i];
        marks[why->dials[i].rank] = true;
        count++;
    }
    if (count > 0) {
        buf_printf(out, "  rank%s ", count == 1 ? "" : "s");
        rank_list(marks, world, out);
        buf_printf(out,
                   of_job ? " get%s no answer from the job's store"
                          : " wait%s for a store that nobody serves",
                   count == 1 ? "s" : "");
        if (first->to[0] != '\0') {
            buf_add_text(out, " at ");
            add_escaped(first->to, out);
        }
        buf_printf(out, " (process %u%s)\n", first->pid, count > 1 ? " and others" : "");
    }
    free(marks);
    if (count == 0)
        return;
    if (of_job)
        buf_add_text(out, "  hint: does a firewall drop what that node sends to this address? "
                          "ddpctl doctor --net\n");
    else if (why->store.address[0] != '\0')
        buf_add_text(out, "  hint: a program that makes a store of its own, at an address of its "
                          "own, needs ddpctl run --no-store: PyTorch serves none where the "
                          "launcher serves one\n");
    else
        buf_add_text(out, "  hint: the store's rank 0 has not served it yet, or MASTER_ADDR and "
                          "MASTER_PORT are not where it is\n");
}

/* -- ranks -------------------------------------------------------------------------------------- */

/* Whether a line of py-spy's output is a thread or a frame. */
static bool is_frame(const char *line, size_t length)
{
    return length > 0 && strncmp(line, "Process ", 8) != 0 && strncmp(line, "Python v", 8) != 0;
}

static void python_lines(const char *text, struct buf *out)
{
    uint32_t count = 0;

    while (*text != '\0' && count < PYTHON_LINES_SHOWN) {
        size_t length = strcspn(text, "\n");

        if (is_frame(text, length)) {
            buf_add_text(out, "      ");
            escape_text(text, length, out);
            buf_add_text(out, "\n");
            count++;
        }
        text += length + (text[length] == '\n');
    }
    if (*text != '\0')
        buf_add_text(out, "      ...\n");
}

static void stack_text(const struct why *why, const struct why_stack *stack, struct buf *out)
{
    const char *node = "?";

    for (uint32_t i = 0; why->job != NULL && i < why->job->ranks.count; i++)
        if (why->job->ranks.items[i].rank == stack->rank)
            node = why->job->ranks.items[i].node;
    buf_printf(out, "  rank %u on %s, process %u: state ", stack->rank, node, stack->pid);
    add_escaped(stack->state, out);
    if (stack->wchan[0] != '\0' && strcmp(stack->wchan, "0") != 0) {
        buf_add_text(out, ", in ");
        add_escaped(stack->wchan, out);
    }
    buf_add_text(out, "\n");
    if (stack->kernel[0] != '\0') {
        buf_add_text(out, "    kernel: ");
        add_escaped(stack->kernel, out);
        buf_add_text(out, "\n");
    }
    if (stack->python[0] != '\0') {
        python_lines(stack->python, out);
    } else if (stack->python_problem[0] != '\0') {
        buf_add_text(out, "    no Python frames: ");
        add_escaped(stack->python_problem, out);
        buf_add_text(out, "\n");
    }
}

/* Ranks that the others wait for come first. */
static void stacks_text(const struct why *why, const bool *blockers, struct buf *out)
{
    for (int turn = 0; turn < 2; turn++)
        for (uint32_t i = 0; i < why->stack_count; i++)
            if (blockers[why->stacks[i].rank] == (turn == 0))
                stack_text(why, &why->stacks[i], out);
}

bool why_stands_still(const struct msg_why_info *info)
{
    if (info->jobs.items[0].state != JOB_RUNNING || info->ran_us < (int64_t)WHY_STILL_US)
        return false;
    return info->moves.count == 0 || info->moves.items[0].age_us >= (int64_t)WHY_STILL_US;
}

static void moves_text(const struct msg_why_info *info, struct buf *out)
{
    char age[TEXT_BYTES];

    for (uint32_t i = 0; i < info->moves.count && i < MOVES_SHOWN; i++) {
        const struct part_rank_move *move = &info->moves.items[i];

        if (i > 0 && move->age_us < (int64_t)WHY_STILL_US)
            break;
        duration_text((uint64_t)move->age_us, age);
        buf_printf(out, "  rank %u told of progress %s ago\n", move->rank, age);
    }
}

static void running_text(const struct why *why, struct buf *out)
{
    const struct msg_why_info *info = why->info;
    const struct part_job *job = &info->jobs.items[0];
    char ran[TEXT_BYTES];

    duration_text(info->ran_us > 0 ? (uint64_t)info->ran_us : 0, ran);
    buf_printf(out, " on %s for %s", job->where, ran);
    if (job->step > 0 || job->epoch > 0) {
        buf_add_text(out, ": ");
        output_progress(job, out);
    } else {
        buf_add_text(out, ": it has told of no progress");
    }
    buf_add_text(out, "\n");
    if (job->reason[0] != '\0') {
        buf_add_text(out, "  ");
        add_escaped(job->reason, out);
        buf_add_text(out, "\n");
    }
    if (job->straggler[0] != '\0') {
        buf_add_text(out, "  straggler: ");
        add_escaped(job->straggler, out);
        buf_add_text(out, "\n");
    }
    moves_text(info, out);
}

static void starting_text(const struct why *why, struct buf *out)
{
    uint32_t world = world_of(&why->info->jobs.items[0]), count = 0;
    bool *marks = calloc(world, sizeof *marks);

    for (uint32_t i = 0; why->job != NULL && marks != NULL && i < why->job->ranks.count; i++) {
        const struct part_job_rank *rank = &why->job->ranks.items[i];

        if (rank->state != RANK_WAITING || rank->rank >= world)
            continue;
        marks[rank->rank] = true;
        count++;
    }
    buf_printf(out, " on %s, generation %u\n", why->info->jobs.items[0].where,
               why->info->jobs.items[0].generation);
    if (count > 0 && marks != NULL) {
        buf_printf(out, "  not started yet: rank%s ", count == 1 ? "" : "s");
        rank_list(marks, world, out);
        buf_add_text(out, "; all begin when every node is ready\n");
    }
    free(marks);
}

static void blockers_line(const bool *blockers, uint32_t count, uint32_t world, struct buf *out)
{
    if (count == 0)
        return;
    buf_printf(out, "  the others wait for rank%s ", count == 1 ? "" : "s");
    rank_list(blockers, world, out);
    buf_add_text(out, "\n");
}

void why_live_text(const struct why *why, struct buf *out)
{
    const struct part_job *job = &why->info->jobs.items[0];
    uint32_t world = world_of(job);
    bool *blockers = calloc(world, sizeof *blockers);

    if (blockers == NULL) {
        out->failed = true;
        return;
    }
    if (job->state == JOB_QUEUED) {
        buf_add_text(out, ": ");
        add_escaped(job->reason, out);
        buf_add_text(out, "\n");
        if (strncmp(job->reason, "waits for", 9) !=
            0) /* it waits for other jobs (core/explain.c), not for slots */
            why_waits_text(why, out);
    } else if (job->state == JOB_STARTING) {
        starting_text(why, out);
    } else {
        running_text(why, out);
    }
    blockers_line(blockers, why_blockers(why, blockers, world), world, out);
    store_text(why, out);
    dial_lines(why, true, out);
    dial_lines(why, false, out);
    stacks_text(why, blockers, out);
    free(blockers);
}
