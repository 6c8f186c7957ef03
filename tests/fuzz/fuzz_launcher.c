/* launcherd's core under any sequence of valid messages of the server and of shims, of ends, answers of
 * GPUs and pauses: its own invariants hold (they are asserted in each step), what it sends can be sent,
 * no shim is started twice, and no run directory goes while its shim lives. */
#include <string.h>

#include "common/buf.h"
#include "launcherd/core/launcher.h"
#include "tests/fuzz/program.h"

#define DIRS 64u
#define ASKS 64u
#define STEPS_MAX 400u

/* A run directory, and the process of its shim. */
struct dir {
    uint64_t job_id; /* 0: none */
    uint32_t generation;
    bool alive, connected, connecting;
    uint64_t killed_at_us; /* or exited, with processes that are not gone; 0: not */
};

static struct world {
    struct launcher core;
    struct launcher_actions actions;
    uint64_t now_us;
    bool is_connecting, is_open, must_close, has_ended;
    struct dir dirs[DIRS];
    struct {
        uint32_t slot;
        uint64_t asked_us;
    } asks[ASKS];
    uint32_t ask_count;
} world;

void fuzz_corpus(fuzz_add *add)
{
    program_corpus(add, 800);
}

static struct dir *find_dir(uint64_t job_id, uint32_t generation)
{
    for (uint32_t i = 0; i < DIRS; i++)
        if (world.dirs[i].job_id == job_id && world.dirs[i].generation == generation)
            return &world.dirs[i];
    return NULL;
}

/* -- actions ----------------------------------------------------------------------------------- */

static void check_msg(const struct msg *msg)
{
    struct buf buf = {0};
    struct err err;

    if (msg_encode(msg, &buf, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s: %s\n", msg_type_name(msg->type), err.text);
        FUZZ_CHECK(false);
    }
    buf_free(&buf);
}

static void note_killed(struct dir *dir)
{
    if (dir->killed_at_us == 0)
        dir->killed_at_us = world.now_us;
}

/* Nobody is in it any more, or what is there does not die of SIGKILL. */
static bool may_remove(const struct dir *dir)
{
    return !dir->alive ||
           (dir->killed_at_us != 0 && world.now_us >= dir->killed_at_us + LAUNCHER_UNKILLABLE_US);
}

static void spawn(const struct launcher_action *action)
{
    struct dir *dir = find_dir(0, 0);

    FUZZ_CHECK(find_dir(action->msg.start.job_id, action->msg.start.generation) == NULL);
    FUZZ_CHECK(dir != NULL);
    *dir = (struct dir){.job_id = action->msg.start.job_id,
                        .generation = action->msg.start.generation,
                        .alive = true,
                        .connecting = true};
}

static bool any_is_alive(void)
{
    for (uint32_t i = 0; i < DIRS; i++)
        if (world.dirs[i].job_id != 0 && !may_remove(&world.dirs[i]))
            return true;
    return false;
}

static void carry_out(const struct launcher_action *action)
{
    struct dir *dir = action->job_id != 0 ? find_dir(action->job_id, action->generation) : NULL;

    switch (action->type) {
    case LAUNCHER_CONNECT_SERVER:
        FUZZ_CHECK(!world.is_open);
        world.is_connecting = true;
        break;
    case LAUNCHER_CLOSE_SERVER:
        world.must_close = true;
        break;
    case LAUNCHER_LEFT:
        world.has_ended = true;
        break;
    case LAUNCHER_END:
        FUZZ_CHECK(!any_is_alive());
        world.has_ended = true;
        break;
    case LAUNCHER_SEND_SERVER:
        FUZZ_CHECK(world.is_open);
        check_msg(&action->msg);
        break;
    case LAUNCHER_SPAWN_SHIM:
        spawn(action);
        break;
    case LAUNCHER_SPAWN_AGAIN:
        FUZZ_CHECK(dir != NULL && !dir->alive);
        dir->alive = dir->connecting = true;
        break;
    case LAUNCHER_ASK_GPU:
        if (world.ask_count < ASKS) {
            world.asks[world.ask_count].slot = action->slot;
            world.asks[world.ask_count++].asked_us = action->asked_us;
        }
        break;
    case LAUNCHER_CONNECT_SHIM:
        FUZZ_CHECK(dir != NULL);
        dir->connecting = true;
        break;
    case LAUNCHER_SEND_SHIM:
        FUZZ_CHECK(dir != NULL);
        check_msg(&action->msg);
        break;
    case LAUNCHER_REMOVE:
        if (dir == NULL)
            break; /* of a start that was refused */
        FUZZ_CHECK(may_remove(dir));
        *dir = (struct dir){.job_id = 0};
        break;
    case LAUNCHER_KILL_SHIM:
        FUZZ_CHECK(dir != NULL);
        note_killed(dir);
        break;
    case LAUNCHER_LOOK_SHIM:
    case LAUNCHER_SIGNAL_RANKS:
        FUZZ_CHECK(dir != NULL);
        break;
    case LAUNCHER_SAVE_SLOTS:
    case LAUNCHER_SAVE_SEEN:
    case LAUNCHER_LOG:
        break;
    }
}

static void step(struct launcher_event event)
{
    event.now_us = world.now_us;
    launcher_step(&world.core, &event, &world.actions);
    for (uint32_t i = 0; i < world.actions.count; i++)
        carry_out(&world.actions.items[i]);
}

static void shim_step(struct dir *dir, enum launcher_event_type type, const char *text,
                      const struct msg *msg)
{
    step((struct launcher_event){.type = type,
                                 .job_id = dir->job_id,
                                 .generation = dir->generation,
                                 .text = text,
                                 .msg = msg});
}

/* -- events ------------------------------------------------------------------------------------ */

static void choose_job(struct program *program, uint64_t *job_id, uint32_t *generation)
{
    uint32_t byte = program_byte(program);
    const struct dir *dir = &world.dirs[byte % 8];

    if (byte >= 250)
        return; /* as it is: any */
    *job_id = 1 + byte % 5;
    *generation = 1 + byte / 5 % 3;
    if (byte >= 100 && dir->job_id != 0) {
        *job_id = dir->job_id;
        *generation = dir->generation;
    }
}

static void fill_start(struct program *program, struct msg_start *start)
{
    static const uint64_t masks[] = {1, 2, 4, 8, 3, 12, 1, 2, 4, 8, UINT64_MAX, 0x8000000000000000};

    choose_job(program, &start->job_id, &start->generation);
    start->slot_mask = masks[program_below(program, 12)];
    if (program_below(program, 16) != 0) { /* else they contradict one another */
        start->local_count = (uint32_t)__builtin_popcountll(start->slot_mask);
        start->rank_base = program_below(program, 4);
        start->world = start->rank_base + start->local_count;
    }
    if (program_below(program, 16) != 0)
        start->cluster = world.core.cluster[0] != '\0' ? world.core.cluster : "c1";
}

static void server_msg(struct program *program, struct arena *arena)
{
    static const enum msg_type types[] = {
        MSG_TYPE_NODE_WELCOME, MSG_TYPE_BEAT_ACK, MSG_TYPE_START,       MSG_TYPE_START,
        MSG_TYPE_START,        MSG_TYPE_GO,       MSG_TYPE_WORLD,       MSG_TYPE_STOP,
        MSG_TYPE_FORGET,       MSG_TYPE_FORGET,   MSG_TYPE_REPORT_ACK,  MSG_TYPE_REPORT_ACK,
        MSG_TYPE_SLOT_RESUME,  MSG_TYPE_ERROR,    MSG_TYPE_NODE_WELCOME};
    enum msg_type type = types[program_below(program, sizeof types / sizeof types[0])];
    struct msg msg;

    if (!world.core.welcomed && program_below(program, 8) != 0)
        type = MSG_TYPE_NODE_WELCOME;
    program_msg(program, arena, type, &msg);
    if (type == MSG_TYPE_NODE_WELCOME) {
        msg.node_welcome.cluster = program_below(program, 8) == 0 ? "c2" : "c1";
        msg.node_welcome.lease_us = 60000000;
    } else if (type == MSG_TYPE_BEAT_ACK) {
        msg.beat_ack.sent_us = world.now_us - program_below(program, 3) * UINT64_C(1000);
    } else if (type == MSG_TYPE_START) {
        fill_start(program, &msg.start);
    } else if (type == MSG_TYPE_GO) {
        choose_job(program, &msg.go.job_id, &msg.go.generation);
    } else if (type == MSG_TYPE_WORLD) {
        choose_job(program, &msg.world.job_id, &msg.world.generation);
    } else if (type == MSG_TYPE_STOP) {
        choose_job(program, &msg.stop.job_id, &msg.stop.generation);
    } else if (type == MSG_TYPE_FORGET) {
        choose_job(program, &msg.forget.job_id, &msg.forget.generation);
    } else if (type == MSG_TYPE_REPORT_ACK) {
        choose_job(program, &msg.report_ack.job_id, &msg.report_ack.generation);
    }
    step((struct launcher_event){.type = LAUNCHER_EVENT_SERVER_MSG, .msg = &msg});
}

static void server_event(struct program *program, struct arena *arena)
{
    if (world.must_close || (world.is_open && program_below(program, 32) == 31)) {
        world.is_open = world.must_close = false;
        step((struct launcher_event){.type = LAUNCHER_EVENT_SERVER_CLOSED});
    } else if (world.is_connecting) {
        world.is_connecting = false;
        world.is_open = program_below(program, 8) != 0;
        step((struct launcher_event){.type = world.is_open ? LAUNCHER_EVENT_SERVER_OPEN
                                                           : LAUNCHER_EVENT_SERVER_CLOSED,
                                     .text = program_below(program, 16) == 15 ? "no" : NULL});
    } else if (world.is_open) {
        server_msg(program, arena);
    }
}

static void send_shim(struct program *program, struct dir *dir, struct arena *arena)
{
    struct msg msg;
    bool is_report = program_below(program, 4) != 0;

    program_msg(program, arena, is_report ? MSG_TYPE_SHIM_REPORT : MSG_TYPE_PROGRESS, &msg);
    if (is_report) {
        msg.shim_report.job_id = dir->job_id;
        msg.shim_report.generation = dir->generation;
        msg.shim_report.phase = (enum shim_phase)program_below(program, SHIM_ENDED + 1);
    } else {
        msg.progress.job_id = dir->job_id;
        msg.progress.generation = dir->generation;
    }
    shim_step(dir, LAUNCHER_EVENT_SHIM_MSG, NULL, &msg);
}

/* The process ends: its socket closes first or later, its processes at once or after a while. */
static void end_shim(struct program *program, struct dir *dir, struct arena *arena)
{
    struct msg msg;
    uint32_t how = program_below(program, 4);

    if (dir->connected && how != 0) {
        dir->connected = false;
        shim_step(dir, LAUNCHER_EVENT_SHIM_CLOSED, NULL, NULL);
    }
    if (how == 1) {
        note_killed(dir);
        shim_step(dir, LAUNCHER_EVENT_SHIM_EXITED, "was killed (signal 9)", NULL);
        return; /* SHIM_GONE comes later, or never */
    }
    dir->alive = dir->connecting = dir->connected = false;
    program_msg(program, arena, MSG_TYPE_SHIM_REPORT, &msg);
    msg.shim_report.job_id = dir->job_id;
    msg.shim_report.generation = dir->generation;
    shim_step(dir, LAUNCHER_EVENT_SHIM_GONE, "was killed (signal 9)", how == 2 ? &msg : NULL);
}

static void shim_event(struct program *program, struct arena *arena)
{
    struct dir *dir = &world.dirs[program_below(program, 8)];
    struct msg msg;

    if (dir->job_id == 0 || !dir->alive)
        return;
    if (dir->connecting && program_below(program, 8) == 7) {
        shim_step(dir,
                  program_below(program, 2) == 0 ? LAUNCHER_EVENT_SHIM_WARM
                                                 : LAUNCHER_EVENT_SHIM_HELD,
                  NULL, NULL);
    } else if (dir->connecting && program_below(program, 4) != 0) {
        dir->connecting = false;
        dir->connected = true;
        program_msg(program, arena, MSG_TYPE_SHIM_HELLO, &msg);
        msg.shim_hello.job_id = dir->job_id;
        msg.shim_hello.generation = dir->generation;
        shim_step(dir, LAUNCHER_EVENT_SHIM_OPEN, NULL, &msg);
    } else if (dir->connecting) {
        dir->connecting = false;
        shim_step(dir, LAUNCHER_EVENT_SHIM_CLOSED, NULL, NULL);
    } else if (program_below(program, 8) == 7) {
        end_shim(program, dir, arena);
    } else if (dir->connected) {
        send_shim(program, dir, arena);
    }
}

static void gpu_event(struct program *program)
{
    struct gpu_facts facts = {.slot = program_below(program, 4)};
    uint32_t kind = program_below(program, 8);

    if (kind == 7 || world.ask_count == 0) {
        step((struct launcher_event){.type = LAUNCHER_EVENT_XID,
                                     .slot = program_below(program, 4),
                                     .xid = program_below(program, 170)});
        return;
    }
    kind = program_below(program, 8);
    facts.slot = world.asks[--world.ask_count].slot;
    facts.asked_us = world.asks[world.ask_count].asked_us - (kind == 6);
    facts.error = kind == 5 ? 15 : 0;
    facts.is_lost = program_below(program, 16) == 15;
    facts.used_bytes = program_below(program, 4) * (UINT64_C(60) << 20);
    facts.process_count = program_below(program, 8) == 7;
    facts.processes[0] = (struct gpu_process){.pid = 7, .job_id = program_below(program, 3)};
    facts.has_ecc = true;
    facts.ecc_uncorrected = program_below(program, 16) == 15;
    facts.remap_pending = program_below(program, 32) == 31;
    step((struct launcher_event){.type = LAUNCHER_EVENT_GPU, .gpu = &facts});
}

static void one_event(struct program *program)
{
    struct arena arena = {0};
    uint32_t byte = program_byte(program);

    world.now_us += 1000;
    if (byte == 255)
        step((struct launcher_event){.type = LAUNCHER_EVENT_LEAVE});
    else if (byte == 254)
        step((struct launcher_event){.type = LAUNCHER_EVENT_START_POSSIBLE});
    else if (byte % 16 < 6)
        server_event(program, &arena);
    else if (byte % 16 < 11)
        shim_event(program, &arena);
    else if (byte % 16 < 13)
        gpu_event(program);
    else
        world.now_us += program_pause_us(program);
    if (byte % 16 >= 13 || world.actions.timer_at_us <= world.now_us)
        step((struct launcher_event){.type = LAUNCHER_EVENT_TICK});
    arena_reset(&arena);
}

/* A new launcherd finds the run directories. */
static void start(struct program *program)
{
    static const struct launcher_options options = {.name = "n0",
                                                    .boot_id = "boot",
                                                    .address = "127.0.0.1",
                                                    .version = "0",
                                                    .protocol = PROTOCOL_VERSION,
                                                    .pid = 7,
                                                    .slots = 4,
                                                    .gpus = 2,
                                                    .seed = 1,
                                                    .gpu_timeout_us = 5000000};

    world.is_connecting = world.is_open = world.must_close = world.has_ended = false;
    world.ask_count = 0;
    launcher_init(&world.core, &options);
    for (uint32_t i = 0; i < DIRS; i++) {
        struct dir *dir = &world.dirs[i];
        struct launcher_shim shim = {.job_id = dir->job_id,
                                     .generation = dir->generation,
                                     .slot_mask = UINT64_C(1) << i % 4,
                                     .local_count = 1,
                                     .cluster = "c1"};

        if (dir->job_id == 0)
            continue;
        dir->connected = dir->connecting = false;
        dir->killed_at_us = 0;
        dir->alive = dir->alive && program_below(program, 4) != 0;
        step((struct launcher_event){.type = LAUNCHER_EVENT_ADOPT,
                                     .shim = &shim,
                                     .alive = dir->alive,
                                     .text = "ended while launcherd was away"});
    }
    step((struct launcher_event){.type = LAUNCHER_EVENT_ADOPTED});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    struct program program = {.bytes = data, .byte_count = byte_count};

    memset(&world, 0, sizeof world);
    world.now_us = 100000000;
    start(&program);
    for (uint32_t i = 0; program_has_more(&program) && i < STEPS_MAX; i++) {
        one_event(&program);
        if (world.has_ended || program_below(&program, 64) == 63)
            start(&program);
    }
    return 0;
}
