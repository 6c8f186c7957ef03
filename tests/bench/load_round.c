/* One job over many simulated nodes, phase by phase: how long from the last node's report to the last
 * node's order. Nodes are connections of their own and beat once a second; the ranks are entries of
 * their reports. */
#include "tests/bench/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"

#define PATIENCE_US UINT64_C(120000000)

/* What the phase at hand waits for: an order of this type on every connection. */
struct round {
    struct crowd crowd;
    uint64_t job_id;
    uint32_t nproc, revision, got;
    enum msg_type wanted;
    bool *has;            /* [nodes]: it came */
    uint32_t *rank_bases; /* [nodes] */
    uint64_t next_beat;   /* of all connections, in turn */
    uint64_t begin_us;
};

static void on_order(struct crowd *crowd, struct line *line, const char *json, size_t byte_count)
{
    struct round *round = crowd->owner;
    struct arena arena = {0};
    struct err err;
    struct msg msg;

    if (msg_decode(json, byte_count, &arena, &msg, &err) != STATUS_OK)
        load_fail("connection %u: %s", line->index, err.text);
    if (msg.type == round->wanted && !round->has[line->index]) {
        round->has[line->index] = true;
        round->got++;
    }
    if (msg.type == MSG_TYPE_START)
        round->rank_bases[line->index] = msg.start.rank_base;
    if (msg.type == MSG_TYPE_STOP)
        load_fail("connection %u: stop: %s", line->index, msg.stop.reason);
    arena_reset(&arena);
}

static void report(struct round *round, uint32_t node, enum shim_phase phase, bool has_world)
{
    struct part_report_rank ranks[SLOTS_PER_NODE_MAX];
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};

    for (uint32_t i = 0; i < round->nproc; i++)
        ranks[i] = (struct part_report_rank){.rank = round->rank_bases[node] + i,
                                             .state = phase == SHIM_READY     ? RANK_WAITING
                                                      : phase == SHIM_RUNNING ? RANK_RUNNING
                                                                              : RANK_EXITED,
                                             .pid = 1000 + i,
                                             .joined = phase != SHIM_READY};
    msg.shim_report = (struct msg_shim_report){.job_id = round->job_id,
                                               .generation = 1,
                                               .revision = round->revision,
                                               .phase = phase,
                                               .master_port = 40000,
                                               .has_world = has_world,
                                               .failed_rank = -1,
                                               .cause = "",
                                               .tail = "",
                                               .error = "",
                                               .failed_core = ""};
    msg.shim_report.ranks.items = ranks;
    msg.shim_report.ranks.count = round->nproc;
    crowd_tell(&round->crowd, &round->crowd.lines[node], &msg);
}

/* A beat a second of each node, with its shim. */
static void beat(struct round *round, enum shim_phase phase)
{
    uint64_t slot_mask = round->nproc == 64 ? UINT64_MAX : (UINT64_C(1) << round->nproc) - 1;
    struct part_beat_shim shim = {round->job_id, 1, phase, slot_mask, false};
    struct msg msg = {.type = MSG_TYPE_BEAT};
    uint64_t now_us = load_now_us() - round->begin_us;

    msg.beat.shims.items = &shim;
    msg.beat.shims.count = round->job_id != 0 && phase != SHIM_PREPARING;
    for (; round->next_beat * 1000000 / round->crowd.count <= now_us; round->next_beat++) {
        msg.beat.sent_us = load_now_us();
        crowd_tell(&round->crowd, &round->crowd.lines[round->next_beat % round->crowd.count], &msg);
    }
}

/* Until every node has the order that is waited for; the time since `since_us`. */
static double wait_all(struct round *round, uint64_t since_us, enum shim_phase phase)
{
    while (round->got < round->crowd.count) {
        beat(round, phase);
        crowd_turn(&round->crowd, 1);
        if (load_now_us() - since_us > PATIENCE_US || round->crowd.lost > 0)
            load_fail("%u of %u nodes have %s", round->got, round->crowd.count,
                      msg_type_name(round->wanted));
    }
    return (double)(load_now_us() - since_us) / 1e3;
}

static void want(struct round *round, enum msg_type type)
{
    round->wanted = type;
    round->got = 0;
    memset(round->has, 0, round->crowd.count * sizeof *round->has);
}

/* Every node reports; while reports are sent, orders are read. Prints the time from the last report
 * to the last order. */
static void phase(struct round *round, const char *name, enum shim_phase phase, bool has_world,
                  enum msg_type answer)
{
    uint64_t begin_us = load_now_us(), last_us = 0;
    double ms;

    want(round, answer);
    round->revision++;
    for (uint32_t i = 0; i < round->crowd.count; i++) {
        report(round, i, phase, has_world);
        last_us = load_now_us();
        if (i % 16 == 0)
            crowd_turn(&round->crowd, 0);
    }
    ms = wait_all(round, last_us, phase);
    printf(",\"%s_ms\":%.1f,\"%s_whole_ms\":%.1f", name, ms, name,
           (double)(load_now_us() - begin_us) / 1e3);
}

/* Returns the id. */
static void submit(struct round *round, const char *address)
{
    static const char *argv[] = {"/bin/true"};
    struct load local = {0};
    struct crowd client = {0};
    char request[REQUEST_ID_CHARS + 1];
    struct msg msg = {.type = MSG_TYPE_SUBMIT};
    struct err err;

    if (address == NULL || caller_find(address, &local.place, &err) != STATUS_OK)
        load_fail("DDP_SERVER should be the server's address for a client");
    crowd_open(&client, &local, 1, 1);
    crowd_greet(&client);
    (void)snprintf(request, sizeof request, "%032llx", (unsigned long long)load_now_us());
    msg.submit.request_id = request;
    msg.submit.name = "round";
    msg.submit.nodes = round->crowd.count;
    msg.submit.nproc_per_node = round->nproc;
    msg.submit.cwd = "/";
    msg.submit.argv = (struct msg_text_list){.items = argv, .count = 1};
    crowd_ask(&client, &client.lines[0], &msg);
    while (client.answered == 0 && client.lost == 0)
        crowd_turn(&client, 100);
    crowd_close(&client);
}

void load_round(struct load *load, const char *unix_address, uint32_t nodes, uint32_t nproc)
{
    struct round round = {.nproc = nproc, .job_id = 1}; /* of a new server */
    uint64_t begin_us;

    round.crowd = (struct crowd){.as_nodes = true, .on_order = on_order, .owner = &round};
    crowd_open(&round.crowd, load, nodes, 0);
    round.has = calloc(nodes, sizeof *round.has);
    round.rank_bases = calloc(nodes, sizeof *round.rank_bases);
    if (round.has == NULL || round.rank_bases == NULL)
        load_fail("no memory");
    crowd_greet(&round.crowd);
    load_mark("connected");
    round.begin_us = load_now_us();
    want(&round, MSG_TYPE_START);
    begin_us = load_now_us();
    submit(&round, unix_address);
    printf("{\"mode\":\"round\",\"connections\":%u,\"ranks\":%u,\"start_ms\":%.1f", nodes,
           nodes * nproc, wait_all(&round, begin_us, SHIM_PREPARING));
    phase(&round, "go", SHIM_READY, false, MSG_TYPE_GO);
    phase(&round, "world", SHIM_RUNNING, false, MSG_TYPE_WORLD);
    phase(&round, "has_world", SHIM_RUNNING, true, MSG_TYPE_REPORT_ACK);
    phase(&round, "end", SHIM_ENDED, true, MSG_TYPE_FORGET);
    printf("}\n");
    load_mark("done");
    free(round.has);
    free(round.rank_bases);
    crowd_close(&round.crowd);
}
