/* The server's core under any sequence of valid messages, closed connections, requests and pauses: its
 * tables agree after every step, what it sends can be sent, generations never go back, what has ended
 * stays so, and a server that starts from its rows at the end takes all of them. */
#include <string.h>

#include "common/buf.h"
#include "tests/fuzz/program.h"
#include "tests/fuzz/small_core.h"

#define CONNS SMALL_CORE_NODES
#define STEPS_MAX 400u
#define SHIMS_MAX 8u /* of a node */

/* What the store has of a job. */
struct row {
    struct rdzv_record record;
    struct rdzv_part parts[16];
};

/* What a node that does as it is told has of a generation. */
struct shim {
    uint64_t job_id, slot_mask; /* job_id 0: none */
    uint32_t generation, rank_base, local_count, revision;
    enum shim_phase phase;
    bool may_go;
};

static struct world {
    struct rdzv *core;
    struct rdzv_actions actions;
    uint64_t now_us, conns[CONNS], conn_serial, request_serial, last_job_id;
    int64_t wall_ms;
    struct row rows[64]; /* by job id */
    struct shim shims[CONNS][SHIMS_MAX];
} world;

void fuzz_corpus(fuzz_add *add)
{
    program_corpus(add, 800);
}

/* -- what a step must not do ------------------------------------------------------------------- */

static void check_persist(uint64_t job_id)
{
    const struct rdzv_record *record = rdzv_job_record(world.core, job_id);
    struct row *row = &world.rows[job_id];

    FUZZ_CHECK(record != NULL && record->job_id == job_id && record->part_count <= 16);
    FUZZ_CHECK(record->generation >= row->record.generation);
    FUZZ_CHECK(record->checkpoint_step >= row->record.checkpoint_step);
    FUZZ_CHECK(row->record.job_id == 0 || !rdzv_state_is_final(row->record.state));
    row->record = *record;
    if (record->part_count > 0)
        memcpy(row->parts, record->parts, record->part_count * sizeof row->parts[0]);
    row->record.parts = row->parts;
}

static struct shim *find_shim(uint32_t node, uint64_t job_id, uint32_t generation)
{
    for (uint32_t i = 0; i < SHIMS_MAX; i++)
        if (world.shims[node][i].job_id == job_id && world.shims[node][i].generation == generation)
            return &world.shims[node][i];
    return NULL;
}

static void obey(uint32_t node, const struct msg *msg)
{
    struct shim *shim;

    if (msg->type == MSG_TYPE_START) {
        shim = find_shim(node, msg->start.job_id, msg->start.generation);
        shim = shim != NULL ? shim : find_shim(node, 0, 0);
        if (shim != NULL && shim->job_id == 0)
            *shim = (struct shim){.job_id = msg->start.job_id,
                                  .slot_mask = msg->start.slot_mask,
                                  .generation = msg->start.generation,
                                  .rank_base = msg->start.rank_base,
                                  .local_count = msg->start.local_count};
        return;
    }
    if (msg->type == MSG_TYPE_GO) {
        shim = find_shim(node, msg->go.job_id, msg->go.generation);
        if (shim != NULL)
            shim->may_go = true;
    } else if (msg->type == MSG_TYPE_STOP) {
        shim = find_shim(node, msg->stop.job_id, msg->stop.generation);
        if (shim != NULL)
            shim->phase = SHIM_ENDED;
    } else if (msg->type == MSG_TYPE_FORGET) {
        shim = find_shim(node, msg->forget.job_id, msg->forget.generation);
        if (shim != NULL)
            *shim = (struct shim){.job_id = 0};
    }
}

/* The server adds what is in its store alone. */
static void check_send(const struct rdzv_action *action)
{
    static const char *const argv[] = {"x"};
    struct buf buf = {0};
    struct msg msg = {0};
    struct err err;

    FUZZ_CHECK(action->conn != 0 && action->conn <= world.conn_serial);
    if (!rdzv_order(world.core, action, &msg))
        return;
    if (msg.type == MSG_TYPE_START) {
        msg.start.cluster = "fuzz";
        msg.start.cwd = "/";
        msg.start.argv = (struct msg_text_list){argv, 1};
    } else if (msg.type == MSG_TYPE_WARM) {
        msg.warm.cluster = "fuzz";
        msg.warm.cwd = "/";
        msg.warm.argv = (struct msg_text_list){argv, 1};
    }
    FUZZ_CHECK(msg_encode(&msg, &buf, &err) == STATUS_OK);
    buf_free(&buf);
    for (uint32_t node = 0; node < CONNS; node++)
        if (world.conns[node] == action->conn)
            obey(node, &msg);
}

static void step(struct rdzv_event event)
{

    event.now_us = world.now_us;
    event.wall_ms = world.wall_ms;
    rdzv_step(world.core, &event, &world.actions);
    rdzv_check(world.core);
    FUZZ_CHECK(world.actions.count <= RDZV_ACTIONS_MAX);
    for (uint32_t i = 0; i < world.actions.count; i++) {
        const struct rdzv_action *action = &world.actions.items[i];

        if (action->type == RDZV_PERSIST)
            check_persist(action->job_id);
        if (action->type == RDZV_REPLY_SUBMITTED)
            world.last_job_id = action->job_id;
        if (rdzv_is_for_node(action->type))
            check_send(action);
        for (uint32_t c = 0; action->type == RDZV_CLOSE_NODE && c < CONNS; c++)
            if (world.conns[c] == action->conn)
                world.conns[c] = 0;
    }
}

/* -- events ------------------------------------------------------------------------------------ */

/* Mostly a job and a generation that are there. */
static void choose_job(struct program *program, uint64_t *job_id, uint32_t *generation)
{
    uint32_t byte = program_byte(program);

    if (byte >= 240)
        return; /* as it is: any */
    *job_id = 1 + byte % 6;
    if (world.last_job_id > 6 && byte % 2 == 0)
        *job_id = world.last_job_id - byte % 6;
    *generation = world.rows[*job_id % 64].record.generation;
    if (byte >= 230)
        *generation += byte % 3;
    else if (byte >= 200 && *generation > 0)
        *generation -= 1 + byte % 2 < *generation ? 1 + byte % 2 : 1;
    if (*generation == 0)
        *generation = 1;
}

static uint32_t list_own(uint32_t node, struct part_beat_shim *items)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < SHIMS_MAX; i++)
        if (world.shims[node][i].job_id != 0)
            items[count++] = (struct part_beat_shim){.job_id = world.shims[node][i].job_id,
                                                     .generation = world.shims[node][i].generation,
                                                     .phase = world.shims[node][i].phase,
                                                     .slot_mask = world.shims[node][i].slot_mask};
    return count;
}

/* Its own, or any. */
static uint32_t make_shims(struct program *program, uint32_t node, struct arena *arena,
                           const struct part_beat_shim **shims)
{
    static const uint64_t masks[] = {1, 2, 3, 4, 7, 15, UINT64_MAX, 0};
    struct part_beat_shim *items = arena_alloc(arena, SHIMS_MAX * sizeof *items);

    uint32_t count = program_below(program, 5);

    FUZZ_CHECK(items != NULL);
    *shims = items;
    if (program_below(program, 8) != 0)
        return list_own(node, items);
    for (uint32_t i = 0; i < count; i++) {
        items[i] = (struct part_beat_shim){.job_id = 1, .generation = 1};
        choose_job(program, &items[i].job_id, &items[i].generation);
        items[i].phase = (enum shim_phase)program_below(program, SHIM_ENDED + 1);
        items[i].slot_mask = masks[program_below(program, 8)];
    }
    return count;
}

static void hello(struct program *program, uint32_t conn, struct arena *arena)
{
    static const char *const names[] = {"n0", "n1", "n2", "n3"};
    struct msg msg;

    program_msg(program, arena, MSG_TYPE_NODE_HELLO, &msg);
    msg.node_hello.protocol = PROTOCOL_VERSION;
    msg.node_hello.name = names[program_below(program, 16) == 0 ? 0 : conn];
    msg.node_hello.slots = 1 + program_below(program, 6);
    msg.node_hello.gpus = program_below(program, 2) * msg.node_hello.slots;
    msg.node_hello.instance = program_below(program, 3);
    msg.node_hello.shims.count = make_shims(program, conn, arena, &msg.node_hello.shims.items);
    if (program_below(program, 4) != 0)
        msg.node_hello.closed.count = 0;
    world.conns[conn] = ++world.conn_serial;
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = world.conns[conn], .msg = &msg});
}

/* Of a generation that the job has left behind. */
static bool is_of_earlier(const struct msg *msg)
{
    const bool is_report = msg->type == MSG_TYPE_SHIM_REPORT;
    uint64_t job_id = is_report ? msg->shim_report.job_id : msg->progress.job_id;
    uint32_t generation = is_report ? msg->shim_report.generation : msg->progress.generation;
    const struct rdzv_record *record;

    if (!is_report && msg->type != MSG_TYPE_PROGRESS)
        return false;
    record = rdzv_job_record(world.core, job_id);
    return record != NULL && generation < record->generation;
}

/* It changes nothing of its job: once all is done that was due. */
static void send_earlier(uint32_t conn, const struct msg *msg)
{
    uint64_t job_id =
        msg->type == MSG_TYPE_SHIM_REPORT ? msg->shim_report.job_id : msg->progress.job_id;

    for (uint32_t i = 0; i < 8 && world.actions.timer_at_us <= world.now_us; i++)
        step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    if (world.actions.timer_at_us <= world.now_us || world.conns[conn] == 0)
        return;
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = world.conns[conn], .msg = msg});
    for (uint32_t i = 0; i < world.actions.count; i++)
        FUZZ_CHECK(world.actions.items[i].job_id != job_id ||
                   (world.actions.items[i].type != RDZV_PERSIST &&
                    world.actions.items[i].type != RDZV_PERSIST_RANKS &&
                    world.actions.items[i].type != RDZV_PERSIST_FAILURE));
}

static void send_node(struct program *program, uint32_t conn, struct arena *arena)
{
    static const enum msg_type types[] = {MSG_TYPE_BEAT, MSG_TYPE_SHIM_REPORT, MSG_TYPE_SHIM_REPORT,
                                          MSG_TYPE_PROGRESS, MSG_TYPE_NODE_EVENT};
    struct msg msg;

    if (world.conns[conn] == 0) {
        hello(program, conn, arena);
        return;
    }
    program_msg(program, arena, types[program_below(program, 5)], &msg);
    if (msg.type == MSG_TYPE_BEAT) {
        msg.beat.shims.count = make_shims(program, conn, arena, &msg.beat.shims.items);
        if (program_below(program, 4) != 0)
            msg.beat.closed.count = 0;
    } else if (msg.type == MSG_TYPE_SHIM_REPORT) {
        struct part_report_rank *ranks = arena_alloc(arena, 8 * sizeof *ranks);

        FUZZ_CHECK(ranks != NULL);
        choose_job(program, &msg.shim_report.job_id, &msg.shim_report.generation);
        msg.shim_report.phase = (enum shim_phase)program_below(program, SHIM_ENDED + 1);
        for (uint32_t i = 0; program_below(program, 4) != 0 && i < 8; i++) {
            msg.shim_report.ranks.count = i + 1;
            ranks[i] = (struct part_report_rank){.rank = program_below(program, 8),
                                                 .state = program_below(program, RANK_LOST + 1),
                                                 .exit_code = (int32_t)program_below(program, 3),
                                                 .joined = program_below(program, 2) == 1};
            msg.shim_report.ranks.items = ranks;
        }
    } else if (msg.type == MSG_TYPE_PROGRESS) {
        choose_job(program, &msg.progress.job_id, &msg.progress.generation);
        if (program_below(program, 8) != 0) {
            msg.progress.step = program_byte(program);
            msg.progress.checkpoint_step = program_byte(program);
        }
    }
    if (is_of_earlier(&msg)) {
        send_earlier(conn, &msg);
        return;
    }
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = world.conns[conn], .msg = &msg});
}

/* A shim goes on as its server wants, makes progress, or its workers end. */
static void report_own(struct program *program, uint32_t conn, struct arena *arena)
{
    struct shim *shim = &world.shims[conn][program_below(program, SHIMS_MAX)];
    struct part_report_rank *ranks = arena_alloc(arena, SLOTS_PER_NODE_MAX * sizeof *ranks);
    uint32_t how = program_below(program, 8);
    struct msg msg;

    FUZZ_CHECK(ranks != NULL);
    for (uint32_t i = 0; i < SHIMS_MAX && shim->job_id == 0; i++)
        shim = &world.shims[conn][i];
    if (shim->job_id == 0 || world.conns[conn] == 0)
        return;
    if (shim->phase == SHIM_PREPARING)
        shim->phase = how == 7 ? SHIM_ENDED : SHIM_READY;
    else if (shim->phase == SHIM_READY && shim->may_go)
        shim->phase = SHIM_RUNNING;
    else if (shim->phase == SHIM_RUNNING && how >= 4)
        shim->phase = SHIM_ENDED;
    if (shim->phase == SHIM_RUNNING && how <= 1) {
        program_msg(program, arena, MSG_TYPE_PROGRESS, &msg);
        msg.progress.job_id = shim->job_id;
        msg.progress.generation = shim->generation;
        msg.progress.step = msg.progress.checkpoint_step = program_byte(program);
        step((struct rdzv_event){
            .type = RDZV_EVENT_NODE_MSG, .conn = world.conns[conn], .msg = &msg});
        return;
    }
    program_msg(program, arena, MSG_TYPE_SHIM_REPORT, &msg);
    msg.shim_report.job_id = shim->job_id;
    msg.shim_report.generation = shim->generation;
    msg.shim_report.revision = ++shim->revision;
    msg.shim_report.phase = shim->phase;
    msg.shim_report.ranks.items = ranks;
    msg.shim_report.ranks.count = shim->local_count;
    msg.shim_report.failed_rank = how == 7 ? (int32_t)shim->rank_base : -1;
    for (uint32_t i = 0; i < shim->local_count; i++)
        ranks[i] = (struct part_report_rank){.rank = shim->rank_base + i,
                                             .state = shim->phase == SHIM_ENDED     ? RANK_EXITED
                                                      : shim->phase == SHIM_RUNNING ? RANK_RUNNING
                                                                                    : RANK_WAITING,
                                             .exit_code = how == 7,
                                             .joined = shim->phase >= SHIM_RUNNING};
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = world.conns[conn], .msg = &msg});
}

static void submit(struct program *program, struct arena *arena)
{
    static const char *const users[] = {"ann", "bob"};
    char request_id[REQUEST_ID_CHARS + 1];
    struct msg msg;

    if (world.last_job_id >= 60)
        return;
    program_msg(program, arena, MSG_TYPE_SUBMIT, &msg);
    (void)snprintf(request_id, sizeof request_id, "%032llu",
                   (unsigned long long)++world.request_serial);
    msg.submit.request_id = request_id;
    if (program_below(program, 8) != 0) {
        msg.submit.nodes = 1 + program_below(program, CONNS);
        msg.submit.nproc_per_node = 1 + program_below(program, 4);
    }
    step((struct rdzv_event){.type = RDZV_EVENT_SUBMIT,
                             .client = 1,
                             .msg = &msg,
                             .user = users[program_below(program, 2)],
                             .is_admin = program_below(program, 2) == 1});
}

static void request(struct program *program, struct arena *arena)
{
    static const enum msg_type types[] = {MSG_TYPE_CANCEL, MSG_TYPE_NODE_DRAIN,
                                          MSG_TYPE_NODE_RESUME};
    static const enum rdzv_event_type events[] = {RDZV_EVENT_CANCEL, RDZV_EVENT_NODE_DRAIN,
                                                  RDZV_EVENT_NODE_RESUME};
    static const char *const names[] = {"n0", "n1", "n2", "n3", "n4"};
    uint32_t which = program_below(program, 3);
    struct rdzv_event event = {.type = events[which], .client = 1, .user = "ann", .job_id = 1};
    struct msg msg;

    program_msg(program, arena, types[which], &msg);
    if (which == 1)
        msg.node_drain.name = names[program_below(program, 5)];
    if (which == 2)
        msg.node_resume.name = names[program_below(program, 5)];
    choose_job(program, &event.job_id, &event.generation);
    event.msg = &msg;
    if (which != 0 || rdzv_job_record(world.core, event.job_id) != NULL)
        step(event); /* the server asks the core about jobs of its table alone */
}

static void one_event(struct program *program)
{
    struct arena arena = {0};
    uint32_t byte = program_byte(program), conn = byte / 16 % CONNS;

    world.now_us += 1000;
    if (byte % 16 < 5) {
        report_own(program, conn, &arena);
    } else if (byte % 16 < 8) {
        send_node(program, conn, &arena);
    } else if (byte % 16 < 10) {
        submit(program, &arena);
    } else if (byte % 16 == 10) {
        request(program, &arena);
    } else if (byte % 16 == 11 && world.conns[conn] != 0) {
        uint64_t closed = world.conns[conn];

        world.conns[conn] = 0;
        step((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = closed});
    } else if (byte % 16 == 12) {
        struct rdzv_event event = {.type = RDZV_EVENT_START_FAILED, .job_id = 1, .text = "no"};

        choose_job(program, &event.job_id, &event.generation);
        step(event);
        event = (struct rdzv_event){.type = RDZV_EVENT_STAGE_LOST,
                                    .conn = world.conns[conn],
                                    .job_id = event.job_id,
                                    .text = "no"};
        if (byte < 128 && event.conn != 0)
            step(event);
    } else {
        uint64_t pause_us = program_pause_us(program);

        world.now_us += pause_us;
        world.wall_ms += (int64_t)(pause_us / 1000);
        step((struct rdzv_event){.type = RDZV_EVENT_TICK,
                                 .paused_us = program_below(program, 8) == 0 ? pause_us : 0});
    }
    arena_reset(&arena);
}

/* A new server, from what was persisted. */
static void restart(void)
{
    world.core = small_core_start();
    memset(world.conns, 0, sizeof world.conns);
    for (uint64_t id = 1; id <= world.last_job_id; id++)
        if (world.rows[id].record.job_id != 0 &&
            !rdzv_state_is_final(world.rows[id].record.state)) {
            struct row row = world.rows[id];

            row.record.parts = row.parts;
            step((struct rdzv_event){
                .type = RDZV_EVENT_RESTORE, .job_id = id, .record = &row.record});
            FUZZ_CHECK(rdzv_job_record(world.core, id) != NULL);
            FUZZ_CHECK(!rdzv_state_is_final(rdzv_job_record(world.core, id)->state));
        }
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = world.last_job_id + 1});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    struct program program = {.bytes = data, .byte_count = byte_count};

    memset(&world, 0, sizeof world);
    world.now_us = 100000000;
    world.wall_ms = INT64_C(1700000000000);
    world.core = small_core_start();
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 0; program_has_more(&program) && i < STEPS_MAX; i++) {
        one_event(&program);
        if (program_below(&program, 64) == 63)
            restart();
    }
    restart();
    return 0;
}
