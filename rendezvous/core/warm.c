#include "rendezvous/core/warm.h"

#include "rendezvous/core/state.h"

static const struct part_warm_job *find(const struct msg_beat *beat, const struct job *job)
{
    for (uint32_t i = 0; i < beat->warm.count; i++)
        if (beat->warm.items[i].job_id == job->record.job_id)
            return &beat->warm.items[i];
    return NULL;
}

static void set_state(struct rdzv *rdzv, const struct node *node, struct node_spare *spare,
                      enum warm_state state)
{
    struct job *job = &rdzv->jobs[spare->job];
    char text[REASON_BYTES_MAX];

    if (spare->state == state)
        return;
    if (state == WARM_READY || spare->state == WARM_READY) {
        spare_table_count_warm(job, state == WARM_READY);
        job_set_changed(rdzv, job);
    }
    spare->state = state & 0xff;
    if (state == WARM_READY)
        text_format(text, "spare node %s is warm: its processes wait for their ranks", node->name);
    else if (state == WARM_FAILED)
        text_format(text,
                    "spare node %s is not warm: its processes have ended, see warm.log among the "
                    "job's logs there; it starts others when it takes over",
                    node->name);
    else
        return;
    job_log(rdzv, job, text);
}

static void ask(struct rdzv *rdzv, const struct node *node, struct node_spare *spare)
{
    const struct job *job = &rdzv->jobs[spare->job];
    struct rdzv_action *action;

    if (spare->asked_conn == (uint32_t)node->conn)
        return;
    spare->asked_conn = (uint32_t)node->conn;
    action = action_add(&rdzv->out, RDZV_SEND_WARM);
    action->conn = node->conn;
    action->job_id = job->record.job_id;
    action->generation = job->record.generation;
    action->slot_mask = spare->slot_mask;
}

static void cool(struct rdzv *rdzv, const struct node *node, uint64_t job_id)
{
    const struct job *job = job_find(rdzv, job_id);
    struct rdzv_action *action;

    if (job != NULL && (spare_table_mask_of(rdzv, roster_index(rdzv, node), job) != 0 ||
                        roster_part_of(rdzv, node, job) != UINT32_MAX))
        return;
    action = action_add(&rdzv->out, RDZV_SEND_COOL);
    action->conn = node->conn;
    action->job_id = job_id;
}

void warm_heard(struct rdzv *rdzv, const struct node *node, const struct msg_beat *beat)
{
    struct node_spares *on = &rdzv->spares_on[roster_index(rdzv, node)];

    assert(node->conn != 0);
    for (uint32_t i = 0; i < on->count; i++) {
        const struct part_warm_job *told = find(beat, &rdzv->jobs[on->items[i].job]);

        set_state(rdzv, node, &on->items[i], told == NULL ? WARM_STARTING : told->state);
        if (told == NULL)
            ask(rdzv, node, &on->items[i]);
    }
    for (uint32_t i = 0; i < beat->warm.count; i++)
        if (beat->warm.items[i].state != WARM_ENDING)
            cool(rdzv, node, beat->warm.items[i].job_id);
}
