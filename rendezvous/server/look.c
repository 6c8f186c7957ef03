/* A job may hang, and the core wants to know whether its ranks are idle and where they are
 * (RDZV_LOOK). All nodes of the job are asked at once. When all have answered, or after
 * LOOK_ANSWER_US, the core gets what has come (RDZV_EVENT_LOOKED). A node that does not answer
 * delays no other. */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/server/internal.h"
#include "rendezvous/server/stacks_text.h"

#define LOOK_ANSWER_US 10000000u
#define LOOK_STACKS_MAX 1024u /* with more ranks only their states are kept */

struct look {
    struct look *next;
    struct server *server;
    look_done done;
    uint64_t job_id, first_id; /* part i was asked under first_id + i */
    uint32_t generation, part_count, asked_count, answered_count, world;
    bool is_deaf, is_busy, with_stacks;
    uint64_t *peers;              /* [part_count]: the node asked; 0: none, or it has answered */
    struct part_rank_look *looks; /* [world] */
    uint32_t look_count;
    struct arena arena; /* of their texts */
    uv_timer_t timer;
};

static void look_free(struct look *look)
{
    arena_reset(&look->arena);
    free(look->peers);
    free(look->looks);
    free(look);
}

static void on_closed(uv_handle_t *timer)
{
    look_free(timer->data);
}

static void take_out(struct look *look)
{
    struct look **at = &look->server->looks;

    while (*at != look)
        at = &(*at)->next;
    *at = look->next;
    uv_close((uv_handle_t *)&look->timer, on_closed);
}

static void finish(struct look *look)
{
    struct server *server = look->server;
    const look_done done = look->done;
    char text[STACKS_BYTES_MAX] = "";
    struct rdzv_event event = {.type = RDZV_EVENT_LOOKED,
                               .job_id = look->job_id,
                               .generation = look->generation,
                               .looks = look->looks,
                               .look_count = look->look_count,
                               .all_answered = look->answered_count == look->part_count,
                               .is_deaf = look->is_deaf,
                               .is_busy = look->is_busy,
                               .text = text};

    if (look->with_stacks)
        stacks_text(look->looks, look->look_count,
                    look->world > look->look_count ? look->world - look->look_count : 0, text);
    take_out(look);
    done(server, &event);
}

static void on_timer(uv_timer_t *timer)
{
    finish(timer->data);
}

/* Takes the answer about one rank of this part. */
static void take_rank(struct look *look, const struct part_rank_look *from)
{
    struct part_rank_look *rank = &look->looks[look->look_count];
    const char *stack = look->look_count < LOOK_STACKS_MAX ? from->stack : "";

    if (look->look_count == look->world || from->rank >= look->world)
        return;
    *rank = *from;
    rank->state = arena_text(&look->arena, from->state, strlen(from->state));
    rank->where = arena_text(&look->arena, from->where, strlen(from->where));
    rank->stack = arena_text(&look->arena, stack, strlen(stack));
    look->look_count += rank->state != NULL && rank->where != NULL && rank->stack != NULL;
}

void look_answer(const struct peer *node, const struct msg_looked *looked)
{
    struct look *look = node->server->looks;
    uint64_t part;

    while (look != NULL && looked->request_id - look->first_id >= look->part_count)
        look = look->next;
    if (look == NULL)
        return; /* too late */
    part = looked->request_id - look->first_id;
    if (look->peers[part] != node->id)
        return;
    look->peers[part] = 0;
    look->answered_count++;
    look->is_deaf = look->is_deaf || looked->is_deaf;
    look->is_busy = look->is_busy || looked->is_busy;
    for (uint32_t i = 0; i < looked->ranks.count; i++)
        take_rank(look, &looked->ranks.items[i]);
    if (look->answered_count == look->asked_count)
        finish(look);
}

static void ask_nodes(struct look *look, const struct rdzv_record *record)
{
    struct server *server = look->server;

    for (uint32_t i = 0; i < look->part_count; i++) {
        struct peer *node = peer_find(server, rdzv_node_conn(server->core, record->parts[i].node));
        struct msg msg = {.type = MSG_TYPE_LOOK,
                          .look = {.request_id = look->first_id + i,
                                   .job_id = look->job_id,
                                   .generation = look->generation,
                                   .with_stacks = look->with_stacks}};
        struct err err;

        if (node == NULL || peer_try_send(node, &msg, &err) != STATUS_OK)
            continue;
        look->peers[i] = node->id;
        look->asked_count++;
    }
}

/* If memory is short nothing happens: the core stops waiting for the answer by itself. */
void look_begin(struct server *server, const struct rdzv_action *action, look_done done)
{
    const struct rdzv_record *record = rdzv_job_record(server->core, action->job_id);
    struct look *look = calloc(1, sizeof *look);

    if (look == NULL || record == NULL || record->part_count == 0 || server->is_stopping) {
        free(look);
        return;
    }
    *look = (struct look){.next = server->looks,
                          .server = server,
                          .done = done,
                          .job_id = action->job_id,
                          .generation = action->generation,
                          .with_stacks = action->with_stacks,
                          .first_id = server->forward_serial + 1,
                          .part_count = record->part_count,
                          .world = record->part_count * record->nproc_per_node,
                          .peers = calloc(record->part_count, sizeof *look->peers),
                          .timer = {.data = look}};
    look->looks = calloc(look->world + 1u, sizeof *look->looks);
    if (look->peers == NULL || look->looks == NULL) {
        look_free(look);
        return;
    }
    server->forward_serial += look->part_count;
    server->looks = look;
    (void)uv_timer_init(server->loop, &look->timer);
    look->timer.data = look;
    ask_nodes(look, record);
    (void)uv_timer_start(&look->timer, on_timer, look->asked_count > 0 ? LOOK_ANSWER_US / 1000 : 0,
                         0);
}

void look_stop(struct server *server)
{
    while (server->looks != NULL)
        take_out(server->looks);
}
