/* Preemption by priority: which job stops for which, and what happens to them. */
#include "tests/unit/rendezvous/core_tools.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"

#define GRACE_US (7 * SECOND_US)

static const struct rdzv_record *record_of(uint64_t id)
{
    return rdzv_job_record(core, id);
}

static enum job_state state_of(uint64_t id)
{
    return record_of(id)->state;
}

static bool is_preempted(uint64_t id)
{
    return record_of(id)->stopping != 0 && record_of(id)->preempted_by != 0;
}

static void hello(uint64_t conn, uint32_t slots)
{
    char name[16];

    (void)snprintf(name, sizeof name, "node%llu", (unsigned long long)conn);
    step_hello(conn, (struct msg_node_hello){.name = name, .instance = conn, .slots = slots});
}

static void begin(uint32_t nodes, uint32_t slots)
{
    begin_preempting(64, 8);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 1; i <= nodes; i++)
        hello(i, slots);
}

static uint64_t submit(uint32_t nodes, uint32_t nproc, int32_t priority)
{
    now_us += 1000; /* nodes are not silent for long */
    wall_ms += 1000;
    return step_submit_as((struct msg_submit){.nodes = nodes,
                                              .nproc_per_node = nproc,
                                              .max_restarts = 1,
                                              .grace_us = GRACE_US,
                                              .priority = priority},
                          "ann", true);
}

/* Reports every part of the job in `phase`, with each of its ranks. */
static void report(uint64_t id, enum shim_phase phase, enum rank_state state)
{
    struct rdzv_record record = keep_record(id);

    for (uint32_t k = 0; k < record.part_count; k++) {
        struct part_report_rank ranks[SLOTS_PER_NODE_MAX] = {{0}};

        for (uint32_t i = 0; i < record.nproc_per_node; i++)
            ranks[i] =
                (struct part_report_rank){.rank = record.parts[k].rank_base + i, .state = state};
        step_part_report(strtoull(record.parts[k].node + 4, NULL, 10), id, record.generation, phase,
                         ranks, record.nproc_per_node);
    }
}

static void run(uint64_t id)
{
    report(id, SHIM_READY, RANK_WAITING);
    now_us += 1000; /* nodes are not silent for long */
    wall_ms += 1000;
    report(id, SHIM_RUNNING, RANK_RUNNING);
    CHECK_EQ(state_of(id), JOB_RUNNING);
}

static uint64_t running(uint32_t nodes, uint32_t nproc, int32_t priority)
{
    uint64_t id = submit(nodes, nproc, priority);

    run(id);
    return id;
}

TEST(a_job_of_a_higher_priority_takes_the_slots_and_the_other_goes_on_afterwards)
{
    uint64_t low, high;

    begin(1, 4);
    low = running(1, 4, -1);
    high = submit(1, 2, 0);
    CHECK(is_preempted(low));
    CHECK_STR(record_of(low)->reason, "preempted by job 2 (job) for its priority, 0 against -1");
    CHECK_EQ(find(RDZV_SEND_STOP)->signal, SIGTERM);
    CHECK_EQ(find(RDZV_SEND_STOP)->grace_us, GRACE_US);
    CHECK_STR(record_of(high)->reason,
              "takes the slots of job 1 (job), whose priority is lower: it is stopping");
    report(low, SHIM_ENDED, RANK_STOPPED); /* with any exit code */
    CHECK_EQ(state_of(high), JOB_STARTING);
    CHECK_EQ(state_of(low), JOB_QUEUED);
    CHECK_EQ(record_of(low)->generation, 1);
    CHECK_EQ(record_of(low)->restarts_without_progress, 0);
    run(high);
    report(high, SHIM_ENDED, RANK_EXITED);
    CHECK_EQ(state_of(low), JOB_STARTING);
    CHECK_EQ(record_of(low)->generation, 2);
    CHECK_EQ(record_of(low)->restarts_without_progress, 0);
    CHECK_EQ(record_of(low)->node_failures, 0);
    CHECK_EQ(record_of(low)->preempted_by, 0);
    run(low);
    report(low, SHIM_ENDED, RANK_EXITED);
    CHECK_EQ(state_of(low), JOB_SUCCEEDED);
}

TEST(nobody_preempts_an_equal_and_without_the_option_nobody_preempts)
{
    uint64_t low, high;

    begin(1, 4);
    low = running(1, 4, 3);
    CHECK(submit(1, 1, 3) != 0);
    CHECK(!is_preempted(low));
    CHECK(submit(1, 1, 2) != 0);
    CHECK(!is_preempted(low));

    begin_with(64, 8);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    hello(1, 4);
    low = running(1, 4, -10);
    high = submit(1, 4, 10);
    CHECK(!is_preempted(low));
    CHECK_STR(record_of(high)->reason,
              "wants 4 slots on one node; 0 have them free, the best other has 0");
}

TEST(nobody_is_stopped_where_that_would_not_make_room)
{
    uint64_t low, equal;

    begin(2, 4);
    equal = running(1, 4, 5);
    low = running(1, 2, 0);
    CHECK(submit(2, 4, 5) != 0); /* it needs both nodes */
    CHECK(!is_preempted(low) && !is_preempted(equal));
    (void)submit(1, 8, 9); /* no node has that many at all */
    CHECK(!is_preempted(low) && !is_preempted(equal));
}

TEST(those_that_lose_least_stop_and_no_more_than_needed)
{
    uint64_t lowest, old, young, wide;

    begin(3, 4);
    wide = running(1, 4, -5);  /* node1 */
    old = running(1, 2, -5);   /* node2 */
    young = running(1, 2, -5); /* node2 */
    lowest = running(1, 1, -9);
    (void)running(1, 3, 0); /* node3 is full with this and the lowest */
    CHECK(submit(1, 2, 0) != 0);
    /* the lowest alone is too little, so it stays; the youngest of the others is enough */
    CHECK(is_preempted(young));
    CHECK(!is_preempted(lowest) && !is_preempted(old) && !is_preempted(wide));
    report(young, SHIM_ENDED, RANK_STOPPED);
    CHECK_EQ(state_of(5 + 1), JOB_STARTING);
}

TEST(slots_that_are_about_to_be_free_are_waited_for)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL,
                      .cancel = {.job = "1", .signal = SIGTERM, .grace_us = -1}};
    uint64_t ends, low, high;

    begin(2, 4);
    ends = running(1, 4, 0);
    low = running(1, 4, 0);
    step((struct rdzv_event){.type = RDZV_EVENT_CANCEL, .client = 9, .job_id = ends, .msg = &msg});
    high = submit(1, 4, 1);
    CHECK(!is_preempted(low));
    report(ends, SHIM_ENDED, RANK_STOPPED);
    CHECK_EQ(state_of(high), JOB_STARTING);
}

TEST(an_old_job_of_low_priority_does_not_take_its_slots_back)
{
    uint64_t low, high, other;

    begin(1, 4);
    low = running(1, 4, -1);
    wall_ms += 7200 * 1000; /* its place is far before that of what comes now */
    high = submit(1, 4, 0);
    other = submit(1, 1, -1);
    CHECK(is_preempted(low));
    report(low, SHIM_ENDED, RANK_STOPPED);
    CHECK_EQ(state_of(high), JOB_STARTING);
    CHECK(actions.timer_at_us <= now_us);
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(state_of(low), JOB_QUEUED);
    CHECK_EQ(state_of(other), JOB_QUEUED);
    CHECK_STR(record_of(other)->reason,
              "behind job 1 (job): it waits for 4 slots on node1, reserved");
    run(high);
    report(high, SHIM_ENDED, RANK_EXITED);
    CHECK_EQ(state_of(low), JOB_STARTING);
}

TEST(a_preempted_job_waits_for_the_other_even_if_that_is_behind_it)
{
    uint64_t first, second, high;

    begin(1, 4);
    first = running(1, 2, -1);
    second = running(1, 2, -1);
    wall_ms += 7200 * 1000;
    high = submit(1, 4, 0);
    CHECK(is_preempted(first) && is_preempted(second));
    CHECK_STR(record_of(high)->reason,
              "takes the slots of 2 jobs whose priority is lower: they are stopping");
    report(first, SHIM_ENDED, RANK_STOPPED);
    CHECK_EQ(state_of(first), JOB_QUEUED); /* its own slots are free, and it is before the other */
    CHECK_STR(record_of(first)->reason,
              "preempted by job 3 (job) for its priority, 0 against -1: starts after it");
    report(second, SHIM_ENDED, RANK_STOPPED);
    CHECK_EQ(state_of(high), JOB_STARTING);
}

TEST(a_cancelled_preemptor_gives_the_slots_back)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL,
                      .cancel = {.job = "2", .signal = SIGTERM, .grace_us = -1}};
    uint64_t low, high;

    begin(1, 4);
    low = running(1, 4, -1);
    high = submit(1, 4, 0);
    step((struct rdzv_event){.type = RDZV_EVENT_CANCEL, .client = 9, .job_id = high, .msg = &msg});
    CHECK_EQ(state_of(high), JOB_CANCELLED);
    report(low, SHIM_ENDED, RANK_STOPPED);
    CHECK_EQ(state_of(low), JOB_STARTING);
}

/* As written by a server that does not know planned stops. */
TEST(a_stored_preemption_without_its_stop_is_a_failure_like_any_other)
{
    struct rdzv_record low, high;

    begin(1, 4);
    CHECK_EQ(running(1, 4, -1), 1);
    CHECK_EQ(submit(1, 4, 0), 2);
    low = keep_record(1);
    high = keep_record(2);
    low.stopping = low.stop_signal = 0;
    begin_preempting(64, 8);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &low});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &high});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 3});
    hello(1, 4); /* it lists nothing */
    CHECK_EQ(state_of(1), JOB_RESTARTING);
}

TEST(a_preemption_goes_on_in_a_restarted_server)
{
    struct rdzv_record low, high;

    begin(1, 4);
    CHECK_EQ(running(1, 4, -1), 1);
    CHECK_EQ(submit(1, 4, 0), 2);
    low = keep_record(1);
    high = keep_record(2);
    begin_preempting(64, 8);
    now_us = 1000 * SECOND_US;
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &low});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &high});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 3});
    step_hello(1, (struct msg_node_hello){.name = "node1", .instance = 1, .slots = 4});
    report(1, SHIM_ENDED, RANK_STOPPED);
    CHECK_EQ(state_of(1), JOB_QUEUED);
    CHECK_EQ(state_of(2), JOB_STARTING);
    /* and when it has to start anew after that */
    low = keep_record(1);
    begin_preempting(64, 8);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &low});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 3});
    CHECK_EQ(state_of(1), JOB_QUEUED);
    step_hello(1, (struct msg_node_hello){.name = "node1", .instance = 1, .slots = 4});
    CHECK_EQ(state_of(1), JOB_STARTING);
    CHECK_EQ(record_of(1)->generation, 2);
}

TEST(an_elastic_job_goes_on_with_fewer_nodes)
{
    struct msg_submit wanted = {
        .nodes = 3, .nodes_min = 1, .nproc_per_node = 2, .grace_us = GRACE_US, .priority = -1};
    uint64_t elastic, rigid, high;

    begin(4, 2);
    rigid = running(1, 2, -1);
    elastic = step_submit_as(wanted, "ann", true);
    CHECK_EQ(record_of(elastic)->part_count, 3);
    run(elastic);
    high = submit(1, 2, 0);
    CHECK(is_preempted(elastic) && !is_preempted(rigid)); /* though the other is older */
    report(elastic, SHIM_ENDED, RANK_STOPPED);
    CHECK_EQ(state_of(high), JOB_STARTING);
    CHECK_EQ(state_of(elastic), JOB_STARTING); /* at once */
    CHECK_EQ(record_of(elastic)->part_count, 2);
}

TEST(more_victims_than_fit_into_a_step_all_stop)
{
    uint32_t stopped = 0;

    begin_preempting(512, 8);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 1; i <= 8; i++)
        hello(i, 64);
    for (uint32_t i = 0; i < 500; i++)
        CHECK(step_submit_as((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .priority = -1},
                             "ann", true) != 0);
    CHECK(step_submit_as((struct msg_submit){.nodes = 8, .nproc_per_node = 64}, "ann", true) != 0);
    for (uint32_t steps = 0; actions.timer_at_us <= now_us && steps < 20; steps++)
        step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    for (uint64_t id = 1; id <= 500; id++)
        stopped += is_preempted(id);
    CHECK_EQ(stopped, 500);
}

/* -- random worlds: what must hold is computed anew, from what the nodes are told -- */

#define MODEL_NODES 4u
#define MODEL_JOBS 16u
#define MODEL_SEEDS 2000u

enum played_state { TO_COME, WAITS, RUNS, OVER };

static struct played {
    uint32_t nodes, nproc, arrive, length, after; /* after: the index of another one + 1 */
    int32_t priority;
    bool after_any, fails, has_succeeded;
    enum played_state state;
    uint64_t id, preempted_by;
    uint32_t end;
    uint64_t masks[MODEL_NODES]; /* while it runs */
} played[MODEL_JOBS];

static struct model {
    uint64_t seed, random;
    uint32_t nodes, slots, jobs, tick, preempted, waited;
} model;

static uint32_t draw(uint32_t below)
{
    model.random ^= model.random >> 12;
    model.random ^= model.random << 25;
    model.random ^= model.random >> 27;
    return (uint32_t)((model.random * 0x2545F4914F6CDD1Dull >> 33) % below);
}

#define REQUIRE(condition, ...)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "# seed %llu, tick %u: ", (unsigned long long)model.seed,        \
                          model.tick);                                                             \
            FAIL(__VA_ARGS__);                                                                     \
        }                                                                                          \
    } while (0)

/* Whether the job fits into the free slots plus those of the marked jobs, except `spared`. */
static bool fits(const struct played *job, const bool *gone, uint32_t spared)
{
    uint32_t nodes = 0;

    for (uint32_t n = 0; n < model.nodes; n++) {
        uint64_t taken = 0;

        for (uint32_t i = 0; i < model.jobs; i++)
            if (played[i].state == RUNS && (!gone[i] || i == spared))
                taken |= played[i].masks[n];
        nodes += model.slots - (uint32_t)__builtin_popcountll(taken) >= job->nproc;
    }
    return nodes >= job->nodes;
}

static struct played *played_of(uint64_t id)
{
    for (uint32_t i = 0; i < model.jobs; i++)
        if (id != 0 && played[i].id == id)
            return &played[i];
    return NULL;
}

/* The jobs stopped since the last check make room for a waiting job, and none is stopped in vain.
 * If two jobs wait in turn, each may have stopped some: who needs which is not known then. */
static void check_victims(const bool *stopped)
{
    static const bool nobody[MODEL_JOBS];
    const struct played *first = NULL;
    bool are_of_one = true;

    for (uint32_t i = 0; i < model.jobs; i++) {
        const struct played *other;

        if (!stopped[i])
            continue;
        played[i].preempted_by = record_of(played[i].id)->preempted_by;
        other = played_of(played[i].preempted_by);
        REQUIRE(other != NULL && other->state == WAITS, "job %u stops for nobody", i + 1);
        REQUIRE(other->priority > played[i].priority, "job %u stops for an equal", i + 1);
        are_of_one = are_of_one && (first == NULL || first == other);
        first = other;
        model.preempted++;
    }
    for (uint32_t i = 0; first != NULL && are_of_one && i < model.jobs; i++)
        REQUIRE(!stopped[i] || !fits(first, stopped, i), "job %u need not stop", i + 1);
    if (first != NULL && are_of_one)
        REQUIRE(!fits(first, nobody, MODEL_JOBS) && fits(first, stopped, MODEL_JOBS),
                "they stop, and job %llu has no room all the same", (unsigned long long)first->id);
}

static void check_start(struct played *job)
{
    const struct rdzv_record *record = record_of(job->id);
    const struct played *other = job->after != 0 ? &played[job->after - 1] : NULL;

    REQUIRE(other == NULL || (other->state == OVER && (job->after_any || other->has_succeeded)),
            "job %llu does not wait", (unsigned long long)job->id);
    memset(job->masks, 0, sizeof job->masks);
    for (uint32_t k = 0; k < record->part_count; k++)
        job->masks[record->parts[k].node[4] - '1'] = record->parts[k].slot_mask;
    job->state = RUNS;
    job->end = model.tick + job->length;
    job->preempted_by = 0;
    for (uint32_t i = 0; i < model.jobs; i++)
        if (played[i].preempted_by == job->id)
            played[i].preempted_by = 0; /* it has had its turn */
}

/* The job has not got the slots, and the core may have dropped it by now. */
static void take_cancelled(struct played *job)
{
    const struct rdzv_record *record = job->state == WAITS ? record_of(job->id) : NULL;

    if (job->state != WAITS || (record != NULL && record->state != JOB_CANCELLED))
        return;
    REQUIRE(job->after != 0 && !job->after_any && !played[job->after - 1].has_succeeded,
            "job %llu is cancelled", (unsigned long long)job->id);
    job->state = OVER;
    model.waited++;
}

/* Processes the jobs that have started since the last check. */
static void take_starts(void)
{
    bool starts[MODEL_JOBS] = {false};

    for (uint32_t i = 0; i < model.jobs; i++)
        take_cancelled(&played[i]);
    for (uint32_t i = 0; i < model.jobs; i++)
        starts[i] = played[i].state == WAITS && record_of(played[i].id) != NULL &&
                    record_of(played[i].id)->state == JOB_STARTING;
    for (uint32_t i = 0; i < model.jobs; i++)
        for (uint32_t k = 0; starts[i] && k < model.jobs; k++)
            REQUIRE(played[i].preempted_by == 0 || played[k].id != played[i].preempted_by ||
                        played[k].state != WAITS || starts[k],
                    "job %u starts again before job %u", i + 1, k + 1);
    for (uint32_t i = 0; i < model.jobs; i++)
        if (starts[i])
            check_start(&played[i]);
}

/* Orders are carried out at once, until none is left. */
static void carry_out(void)
{
    bool stopped[MODEL_JOBS] = {false};

    for (bool is_left = true; is_left;) {
        is_left = false;
        memset(stopped, 0, sizeof stopped);
        take_starts();
        for (uint32_t i = 0; i < model.jobs; i++) {
            const struct rdzv_record *record = played[i].id == 0 ? NULL : record_of(played[i].id);

            stopped[i] = record != NULL && played[i].state == RUNS && record->stopping != 0;
            is_left = is_left || stopped[i];
        }
        check_victims(stopped);
        for (uint32_t i = 0; i < model.jobs; i++) {
            if (stopped[i]) {
                played[i].length = played[i].end - model.tick;
                played[i].state = WAITS;
                report(played[i].id, SHIM_ENDED, RANK_STOPPED);
            } else if (played[i].state == RUNS && record_of(played[i].id)->state == JOB_STARTING &&
                       record_of(played[i].id)->stopping == 0) {
                report(played[i].id, SHIM_READY, RANK_WAITING);
                report(played[i].id, SHIM_RUNNING, RANK_RUNNING);
                is_left = true;
            }
        }
        if (actions.timer_at_us <= now_us) {
            step((struct rdzv_event){.type = RDZV_EVENT_TICK});
            is_left = true;
        }
    }
}

static void arrive(struct played *job)
{
    const struct msg_submit request = {.request_id = "0",
                                       .name = "job",
                                       .cwd = "/",
                                       .nodes = job->nodes,
                                       .nproc_per_node = job->nproc,
                                       .priority = job->priority};
    struct msg msg = {.type = MSG_TYPE_SUBMIT, .submit = request};
    struct rdzv_event event = {.type = RDZV_EVENT_SUBMIT, .client = 7, .msg = &msg, .user = "ann"};

    if (job->after != 0) { /* as the edge finds it in the store */
        const struct played *other = &played[job->after - 1];

        event.after = (struct rdzv_after){
            .count = 1, .items = {{.first = other->id, .last = other->id, .any = job->after_any}}};
        if (other->state == OVER && !other->has_succeeded && !job->after_any)
            event.after.failed_id = other->id;
        event.after.failed_state = JOB_FAILED;
    }
    step(event);
    CHECK(find(RDZV_REPLY_SUBMITTED) != NULL);
    job->id = find(RDZV_REPLY_SUBMITTED)->job_id;
    job->state = WAITS;
    carry_out();
}

static void leave(struct played *job)
{
    report(job->id, SHIM_ENDED, job->fails ? RANK_LOST : RANK_EXITED);
    job->state = OVER;
    job->has_succeeded = !job->fails;
    carry_out();
}

static void make_jobs(void)
{
    memset(played, 0, sizeof played);
    for (uint32_t i = 0; i < model.jobs; i++) {
        played[i] = (struct played){.nodes = 1 + draw(model.nodes),
                                    .nproc = 1 + draw(model.slots),
                                    .arrive = i == 0 ? 0 : played[i - 1].arrive + draw(4),
                                    .length = 1 + draw(12),
                                    .priority = -(int32_t)draw(4),
                                    .fails = draw(6) == 0,
                                    .after_any = draw(2) == 0};
        if (i > 0 && draw(4) == 0)
            played[i].after = 1 + draw(i);
    }
}

static void play(uint64_t seed)
{
    uint32_t over = 0;

    model = (struct model){.seed = seed, .random = seed * 0x9e3779b97f4a7c15ull + 1};
    model.nodes = 1 + draw(MODEL_NODES);
    model.slots = 1 + draw(6);
    model.jobs = 2 + draw(MODEL_JOBS - 1);
    make_jobs();
    begin(model.nodes, model.slots);
    for (model.tick = 0; over < model.jobs; model.tick++) {
        REQUIRE(model.tick < 600, "jobs wait, and nothing is to come");
        now_us += 100;    /* nodes are not silent for long, */
        wall_ms += 20000; /* and places in the queue differ */
        over = 0;
        for (uint32_t i = 0; i < model.jobs; i++) {
            if (played[i].state == TO_COME && played[i].arrive <= model.tick)
                arrive(&played[i]);
            if (played[i].state == RUNS && played[i].end <= model.tick)
                leave(&played[i]);
        }
        for (uint32_t i = 0; i < model.jobs; i++)
            over += played[i].state == OVER;
    }
}

TEST(random_jobs_of_different_priority)
{
    uint64_t preempted = 0, waited = 0;

    for (uint64_t seed = 1; seed <= MODEL_SEEDS; seed++) {
        play(seed);
        preempted += model.preempted;
        waited += model.waited;
    }
    (void)printf("# %u worlds: %llu preempted, %llu that waited in vain\n", MODEL_SEEDS,
                 (unsigned long long)preempted, (unsigned long long)waited);
    CHECK(preempted > 1000 && waited > 200);
}

TEST_MAIN
