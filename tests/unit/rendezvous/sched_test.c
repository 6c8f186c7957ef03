/* The scheduler as a whole, by properties: random clusters, queues and lengths of jobs, each from a
 * seed, played through the server's core; nodes do at once what they are ordered. What must hold is
 * computed here anew, from what the nodes were told, not from the core's tables:
 *
 *   a slot has one job; a job starts as a whole; quotas hold
 *   jobs start by their places: the first that waits never fits into what is free
 *   that one is not delayed by those behind it: it starts by the time that follows from the limits of
 *   what ran when it became the first, and at the latest when all of that has ended
 *   slots of a job that waits for its next try are not given to those behind it
 *   as long as a job waits, one runs; so all have ended by the sum of their lengths */
#include "tests/unit/rendezvous/core_tools.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/core/state.h" /* for the time of a job's next try */
#include "tests/lib/test.h"

#define NODES 6u
#define JOBS 40u
#define USERS 3u
#define SEEDS 3000u
#define ORDERS 1024u
#define NEVER UINT64_MAX
#define START_SLACK_US (60 * SECOND_US) /* of a job on reserved slots: see sched.h */

enum state { TO_COME, WAITS, RUNS, OVER };

struct played {
    uint32_t nodes, nproc, user, fails;
    int32_t priority;
    uint64_t arrive_us, length_us, limit_us, end_us, retry_us;
    enum state state;
    uint64_t id;
    uint32_t generation;
    uint64_t hard_end_us; /* by which it must be gone, for the first that waited then */
    uint32_t part_count;
    uint32_t part_nodes[NODES];
    uint64_t part_masks[NODES];
};

/* What is expected of the first waiting job. */
struct first {
    uint32_t job; /* JOBS: none */
    uint64_t by_us;
    uint64_t running; /* jobs that ran when it became the first: bit i */
};

static struct world {
    uint64_t seed, random;
    uint32_t node_count, slots[NODES], job_count;
    uint32_t max_slots;
    struct played jobs[JOBS];
    uint32_t owner[NODES][SLOTS_PER_NODE_MAX]; /* job + 1; 0: free */
    struct first first;
    uint64_t lengths_us; /* of all jobs */
    uint32_t starts, behind, on_reserved;
} world;

struct sent_order {
    enum rdzv_action_type type;
    uint64_t conn, job_id;
    uint32_t generation, part;
};
static struct sent_order orders[ORDERS];
static uint32_t order_first, order_count;

static uint64_t draw(uint64_t below)
{
    world.random ^= world.random >> 12;
    world.random ^= world.random << 25;
    world.random ^= world.random >> 27;
    return world.random * 0x2545F4914F6CDD1Dull % below;
}

#define REQUIRE(condition, ...)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "# seed %llu at %llu s: ", (unsigned long long)world.seed,       \
                          (unsigned long long)(now_us / SECOND_US));                               \
            FAIL(__VA_ARGS__);                                                                     \
        }                                                                                          \
    } while (0)

static void begin(void)
{
    static void *memory;
    static uint64_t bytes;
    struct rdzv_options options = {.jobs_max = JOBS,
                                   .nodes_max = NODES,
                                   .lease_us = NEVER / 4,
                                   .beat_interval_us = SECOND_US,
                                   .suspect_us = NEVER / 4,
                                   .lost_us = NEVER / 4,
                                   .max_slots_per_user = world.max_slots,
                                   .seed = world.seed,
                                   .cluster = "test"};

    if (memory == NULL) {
        bytes = rdzv_bytes(&options);
        memory = malloc(bytes);
        CHECK(memory != NULL);
    }
    memset(memory, 0, bytes);
    core = rdzv_init(memory, &options);
    now_us = 1000 * SECOND_US;
    order_first = order_count = 0;
}

/* -- what is true of the cluster --------------------------------------------------------------- */

static uint64_t free_mask(uint32_t node)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < world.slots[node]; i++)
        if (world.owner[node][i] == 0)
            mask |= 1ull << i;
    return mask;
}

static uint32_t user_slots(uint32_t user)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < world.job_count; i++) {
        const struct played *job = &world.jobs[i];
        bool has_slots = job->state == RUNS || (job->state == WAITS && job->generation > 0);

        count += has_slots && job->user == user ? job->nodes * job->nproc : 0;
    }
    return count;
}

static bool is_over_quota(const struct played *job)
{
    return world.max_slots != 0 && job->generation == 0 &&
           user_slots(job->user) + job->nodes * job->nproc > world.max_slots;
}

static int64_t place_of(const struct played *job)
{
    return (int64_t)(job->arrive_us / 1000) - job->priority * 60000;
}

static bool is_before(const struct played *a, const struct played *b)
{
    return place_of(a) != place_of(b) ? place_of(a) < place_of(b) : a->id < b->id;
}

/* Jobs that wait for their next try keep their slots, so that later jobs do not get them. */
static bool is_held(uint32_t node, uint32_t slot, const struct played *against)
{
    for (uint32_t i = 0; i < world.job_count; i++) {
        const struct played *job = &world.jobs[i];

        if (job->state != WAITS || job->generation == 0 || now_us >= job->retry_us ||
            !is_before(job, against))
            continue;
        for (uint32_t k = 0; k < job->part_count; k++)
            if (job->part_nodes[k] == node && (job->part_masks[k] >> slot & 1) != 0)
                return true;
    }
    return false;
}

/* Whether it fits once all jobs that are over by `at_us`, as far as it is known, are gone; 0: now. */
static bool fits_at(const struct played *job, uint64_t at_us)
{
    uint32_t nodes = 0;

    for (uint32_t n = 0; n < world.node_count; n++) {
        uint32_t count = 0;

        for (uint32_t s = 0; s < world.slots[n]; s++) {
            const struct played *on =
                world.owner[n][s] == 0 ? NULL : &world.jobs[world.owner[n][s] - 1];

            count += (on == NULL || on->hard_end_us <= at_us) && !is_held(n, s, job);
        }
        nodes += count >= job->nproc;
    }
    return nodes >= job->nodes;
}

/* The latest time at which the job can start if nothing else is started; NEVER: unknown. */
static uint64_t known_start(const struct played *job)
{
    uint64_t best = NEVER;

    if (fits_at(job, now_us))
        return now_us;
    for (uint32_t i = 0; i < world.job_count; i++)
        if (world.jobs[i].state == RUNS && world.jobs[i].hard_end_us < best &&
            fits_at(job, world.jobs[i].hard_end_us))
            best = world.jobs[i].hard_end_us;
    return best;
}

static struct played *first_waiting(void)
{
    struct played *first = NULL;

    for (uint32_t i = 0; i < world.job_count; i++) {
        struct played *job = &world.jobs[i];

        if (job->state == WAITS && !is_over_quota(job) &&
            (job->generation == 0 || now_us >= job->retry_us) &&
            (first == NULL || is_before(job, first)))
            first = job;
    }
    return first;
}

/* -- the checks -------------------------------------------------------------------------------- */

static void take_slots(struct played *job, const struct rdzv_record *record)
{
    job->part_count = record->part_count;
    REQUIRE(record->part_count == job->nodes, "job %llu has %u of %u parts",
            (unsigned long long)job->id, record->part_count, job->nodes);
    for (uint32_t k = 0; k < record->part_count; k++) {
        const struct rdzv_part *part = &record->parts[k];
        uint32_t node = (uint32_t)strtoul(part->node + 4, NULL, 10);

        REQUIRE((uint32_t)__builtin_popcountll(part->slot_mask) == job->nproc &&
                    (part->slot_mask & ~free_mask(node)) == 0,
                "job %llu gets slots %llx of node%u, free are %llx", (unsigned long long)job->id,
                (unsigned long long)part->slot_mask, node, (unsigned long long)free_mask(node));
        for (uint32_t s = 0; s < world.slots[node]; s++) {
            if ((part->slot_mask >> s & 1) == 0)
                continue;
            REQUIRE(!is_held(node, s, job), "job %llu gets slot %u of node%u, which is held",
                    (unsigned long long)job->id, s, node);
            world.owner[node][s] = (uint32_t)(job - world.jobs) + 1;
        }
        job->part_nodes[k] = node;
        job->part_masks[k] = part->slot_mask;
    }
}

static void check_start(struct played *job)
{
    const struct rdzv_record *record = rdzv_job_record(core, job->id);
    const struct played *first = first_waiting();
    uint64_t by_us = 0;

    REQUIRE(first != NULL, "job %llu starts while none may", (unsigned long long)job->id);
    if (first != job) {
        REQUIRE(is_before(first, job), "job %llu is over its quota", (unsigned long long)job->id);
        REQUIRE(!fits_at(first, 0), "job %llu starts before job %llu, which fits",
                (unsigned long long)job->id, (unsigned long long)first->id);
        by_us = known_start(first);
        world.behind++;
    }
    REQUIRE(!is_over_quota(job), "job %llu is over its quota", (unsigned long long)job->id);
    job->hard_end_us =
        job->limit_us == 0 ? NEVER : now_us + job->limit_us + (first != job ? START_SLACK_US : 0);
    take_slots(job, record);
    job->state = RUNS;
    job->generation++;
    world.starts++;
    if (first != job && by_us != NEVER) {
        REQUIRE(known_start(first) <= by_us, "job %llu delays job %llu from %llu s to %llu s",
                (unsigned long long)job->id, (unsigned long long)first->id,
                (unsigned long long)(by_us / SECOND_US),
                (unsigned long long)(known_start(first) / SECOND_US));
        world.on_reserved += job->hard_end_us <= by_us;
    }
    if (job->limit_us != 0)
        job->hard_end_us = now_us + job->limit_us; /* it runs at once */
    if (first == job || is_before(job, &world.jobs[world.first.job % JOBS]))
        world.first.job = JOBS; /* what is known of the first that waits begins anew */
}

static uint64_t running_set(void)
{
    uint64_t set = 0;

    for (uint32_t i = 0; i < world.job_count; i++) {
        const struct played *job = &world.jobs[i];

        set |= (uint64_t)(job->state == RUNS || (job->state == WAITS && job->generation > 0)) << i;
    }
    return set;
}

static void check_first(void)
{
    const struct played *first = first_waiting();
    uint32_t index = first == NULL ? JOBS : (uint32_t)(first - world.jobs);

    if (index != world.first.job) {
        world.first = (struct first){.job = index, .running = running_set()};
        if (first != NULL)
            world.first.by_us = known_start(first);
    }
    if (first == NULL)
        return;
    REQUIRE(!fits_at(first, 0), "job %llu waits, and fits", (unsigned long long)first->id);
    if (world.first.by_us == NEVER) /* it may be known by now */
        world.first.by_us = known_start(first);
    REQUIRE(world.first.by_us != NEVER || (world.first.running & running_set()) != 0,
            "job %llu waits, and all that ran when it became the first has ended",
            (unsigned long long)first->id);
    REQUIRE(world.first.by_us == NEVER || now_us <= world.first.by_us,
            "job %llu waits, and was to start by %llu s", (unsigned long long)first->id,
            (unsigned long long)(world.first.by_us / SECOND_US));
}

/* -- nodes that do at once what they are ordered ------------------------------------------------ */

static struct played *job_of(uint64_t id)
{
    for (uint32_t i = 0; i < world.job_count; i++)
        if (world.jobs[i].id == id)
            return &world.jobs[i];
    return NULL;
}

static void take_actions(void)
{
    for (uint32_t i = 0; i < actions.count; i++) {
        const struct rdzv_action *action = &actions.items[i];
        struct played *job = job_of(action->job_id);

        if (action->type == RDZV_LOG_EVENT && job != NULL &&
            strstr(action->text, " is starting,") != NULL)
            check_start(job);
        if (action->type != RDZV_SEND_START && action->type != RDZV_SEND_GO &&
            action->type != RDZV_SEND_STOP)
            continue;
        REQUIRE(order_count < ORDERS, "too many orders");
        orders[(order_first + order_count++) % ORDERS] = (struct sent_order){
            action->type, action->conn, action->job_id, action->generation, action->part};
    }
}

static void step_world(struct rdzv_event event)
{
    wall_ms = (int64_t)(now_us / 1000);
    step(event);
}

static void report(const struct played *job, uint32_t part, enum shim_phase phase,
                   uint32_t exit_code)
{
    struct part_report_rank ranks[SLOTS_PER_NODE_MAX] = {{0}};
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};

    for (uint32_t i = 0; i < job->nproc; i++)
        ranks[i] = (struct part_report_rank){.rank = part * job->nproc + i,
                                             .state = phase == SHIM_ENDED     ? RANK_EXITED
                                                      : phase == SHIM_RUNNING ? RANK_RUNNING
                                                                              : RANK_WAITING,
                                             .exit_code = (int32_t)exit_code};
    msg.shim_report =
        (struct msg_shim_report){.job_id = job->id,
                                 .generation = job->generation,
                                 .revision = 1,
                                 .phase = phase,
                                 .master_port = 4000,
                                 .failed_rank = exit_code != 0 ? (int32_t)ranks[0].rank : -1,
                                 .cause = exit_code != 0 ? "exit 1" : "",
                                 .tail = "",
                                 .error = "",
                                 .failed_core = ""};
    msg.shim_report.ranks.items = ranks;
    msg.shim_report.ranks.count = job->nproc;
    step_world((struct rdzv_event){
        .type = RDZV_EVENT_NODE_MSG, .conn = job->part_nodes[part] + 1, .msg = &msg});
}

/* All parts of the job end at this instant; the core's actions are processed after the last
 * report. */
static void end(struct played *job, uint32_t exit_code)
{
    uint32_t generation = job->generation;

    for (uint32_t k = 0; k < job->part_count; k++) {
        if (k + 1 == job->part_count) {
            const struct rdzv_record *record = rdzv_job_record(core, job->id);

            REQUIRE(record->generation == generation, "job %llu moved on",
                    (unsigned long long)job->id);
            for (uint32_t p = 0; p < job->part_count; p++)
                for (uint32_t s = 0; s < SLOTS_PER_NODE_MAX; s++)
                    if ((job->part_masks[p] >> s & 1) != 0)
                        world.owner[job->part_nodes[p]][s] = 0;
            job->state = OVER;
        }
        report(job, k, SHIM_ENDED, exit_code);
        if (k + 1 == job->part_count) {
            const struct rdzv_record *record = rdzv_job_record(core, job->id);

            if (record != NULL &&
                (record->state == JOB_RESTARTING || record->generation > generation)) {
                job->state = WAITS; /* and starts again in this step, if the log says so */
                job->retry_us =
                    record->state == JOB_RESTARTING ? job_find(core, job->id)->retry_at_us : now_us;
                if (world.first.job != JOBS && is_before(job, &world.jobs[world.first.job]))
                    world.first.job = JOBS;
            }
        }
        take_actions();
    }
}

static void carry_out(void)
{
    while (order_count > 0) {
        struct sent_order order = orders[order_first];
        struct played *job = job_of(order.job_id);

        order_first = (order_first + 1) % ORDERS;
        order_count--;
        if (job == NULL || job->state != RUNS || job->generation != order.generation)
            continue;
        if (order.type == RDZV_SEND_STOP) {
            end(job, 1);
            continue;
        }
        if (order.type == RDZV_SEND_START) {
            report(job, order.part, SHIM_READY, 0);
            take_actions();
            continue;
        }
        for (uint32_t k = 0; k < job->part_count; k++)
            if (job->part_nodes[k] + 1 == order.conn) {
                report(job, k, SHIM_RUNNING, 0);
                break;
            }
        job->end_us = now_us + job->length_us;
        take_actions();
    }
}

/* -- one world --------------------------------------------------------------------------------- */

static void make_world(void)
{
    bool any_limits = draw(3) > 0, all_limits = draw(3) == 0;
    uint32_t most = 0, largest = 0;

    world.node_count = 1 + (uint32_t)draw(NODES);
    for (uint32_t i = 0; i < world.node_count; i++) {
        world.slots[i] = 1 + (uint32_t)draw(8);
        largest = world.slots[i] > largest ? world.slots[i] : largest;
        most += world.slots[i];
    }
    world.max_slots = draw(2) == 0 ? 0 : 1 + (uint32_t)draw(most);
    world.job_count = 2 + (uint32_t)draw(JOBS - 1);
    for (uint32_t i = 0; i < world.job_count; i++) {
        struct played *job = &world.jobs[i];
        uint32_t fitting = 0;

        job->nproc = 1 + (uint32_t)draw(largest);
        for (uint32_t n = 0; n < world.node_count; n++)
            fitting += world.slots[n] >= job->nproc;
        job->nodes = 1 + (uint32_t)draw(fitting);
        if (world.max_slots != 0 && job->nodes * job->nproc > world.max_slots)
            job->nodes = job->nproc = 1;
        job->user = (uint32_t)draw(USERS);
        job->priority = draw(4) == 0 ? (int32_t)draw(60) - 30 : 0;
        job->arrive_us = (1000 + draw(draw(2) == 0 ? 10 : 2000)) * SECOND_US;
        job->length_us = (1 + draw(draw(2) == 0 ? 100 : 1000)) * SECOND_US;
        if (all_limits || (any_limits && draw(2) == 0))
            job->limit_us = draw(4) == 0 ? job->length_us : (1 + draw(1000)) * SECOND_US;
        if (draw(6) == 0)
            job->fails = 1 + (uint32_t)draw(3);
        world.lengths_us += (job->fails + 1) * (job->length_us + 5 * SECOND_US);
    }
}

static void say_hello(uint32_t node)
{
    char name[16];

    (void)snprintf(name, sizeof name, "node%u", node);
    step_hello(node + 1, (struct msg_node_hello){.name = name, .slots = world.slots[node]});
}

static void submit(struct played *job)
{
    static const char *const names[USERS] = {"ann", "bob", "cleo"};

    wall_ms = (int64_t)(now_us / 1000);
    job->id = step_submit_as((struct msg_submit){.nodes = job->nodes,
                                                 .nproc_per_node = job->nproc,
                                                 .max_restarts = 5,
                                                 .time_limit_us = job->limit_us,
                                                 .priority = job->priority},
                             names[job->user], true);
    REQUIRE(find(RDZV_REPLY_SUBMITTED) != NULL, "a job was refused: %s",
            find(RDZV_REPLY_ERROR)->text);
    job->state = WAITS;
    if (world.first.job != JOBS && is_before(job, &world.jobs[world.first.job]))
        world.first.job = JOBS;
    take_actions();
    carry_out();
}

static void tick(void)
{
    step_world((struct rdzv_event){.type = RDZV_EVENT_TICK});
    take_actions();
    carry_out();
}

static uint64_t next_instant(void)
{
    uint64_t next = actions.timer_at_us;

    for (uint32_t i = 0; i < world.job_count; i++) {
        const struct played *job = &world.jobs[i];

        if (job->state == TO_COME && job->arrive_us < next)
            next = job->arrive_us;
        if (job->state == RUNS && job->end_us < next)
            next = job->end_us;
    }
    return next;
}

static bool is_done(void)
{
    for (uint32_t i = 0; i < world.job_count; i++)
        if (world.jobs[i].state != OVER)
            return false;
    return true;
}

static void play(uint64_t seed)
{
    memset(&world, 0, sizeof world);
    world.seed = seed;
    world.random = seed * 0x9e3779b97f4a7c15ull + 1;
    world.first.job = JOBS;
    make_world();
    begin();
    step_world((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 0; i < world.node_count; i++)
        say_hello(i);
    for (uint32_t steps = 0; !is_done(); steps++) {
        uint64_t next = next_instant();

        REQUIRE(next != NEVER && steps < 100000, "jobs wait, and nothing is to come");
        now_us = next > now_us ? next : now_us;
        for (uint32_t i = 0; i < world.job_count; i++) {
            struct played *job = &world.jobs[i];

            if (job->state == RUNS && job->end_us <= now_us) {
                end(job, job->fails > 0 ? 1 : 0);
                job->fails -= job->fails > 0;
                carry_out();
            }
        }
        for (uint32_t i = 0; i < world.job_count; i++)
            if (world.jobs[i].state == TO_COME && world.jobs[i].arrive_us <= now_us)
                submit(&world.jobs[i]);
        tick();
        check_first();
    }
    REQUIRE(now_us <= 3000 * SECOND_US + world.lengths_us, "the last job ended too late");
}

TEST(random_queues_on_random_clusters)
{
    const char *from = getenv("SCHED_SEED");
    uint64_t first = from != NULL ? strtoull(from, NULL, 10) : 1;
    uint64_t count = from != NULL ? 1 : SEEDS;
    uint64_t starts = 0, behind = 0, on_reserved = 0;

    for (uint64_t seed = first; seed < first + count; seed++) {
        play(seed);
        starts += world.starts;
        behind += world.behind;
        on_reserved += world.on_reserved;
    }
    (void)printf("# %llu worlds, %llu starts, %llu of them before one that waited, %llu on time\n",
                 (unsigned long long)count, (unsigned long long)starts, (unsigned long long)behind,
                 (unsigned long long)on_reserved);
    CHECK(from != NULL || (behind > 1000 && on_reserved > 100));
}

TEST_MAIN
