/* Makes the messages to nodes from actions. */
#include <assert.h>

#include "rendezvous/core/rdzv.h"

static void make_start(const struct rdzv_record *record, uint32_t part_index,
                       struct msg_start *start)
{
    const struct rdzv_part *part = &record->parts[part_index];
    const bool has_warning = record->warn_us > 0 && record->warn_us < record->time_limit_us;

    assert(part_index < record->part_count);
    *start = (struct msg_start){
        .job_id = record->job_id,
        .generation = record->generation,
        .name = record->name,
        .user = record->user,
        .node_rank = part_index,
        .node_count = record->part_count,
        .rank_base = part->rank_base,
        .local_count = part->local_count,
        .world = record->nodes * record->nproc_per_node,
        .slot_mask = part->slot_mask,
        .restart_count = record->restarts,
        .max_restarts = record->max_restarts,
        .checkpoint_step = record->checkpoint_step,
        .grace_us = record->grace_us,
        .array_job = record->array_job,
        .array_index = record->array_index,
        .array_count = record->array_count,
        .array_min = record->array_min,
        .array_max = record->array_max,
        .warn_after_us = has_warning ? record->time_limit_us - record->warn_us : 0,
        .warn_signal = has_warning ? record->warn_signal : 0,
        .submitted_ms = record->submitted_ms,
    };
}

bool rdzv_order(const struct rdzv *rdzv, const struct rdzv_action *action, struct msg *msg)
{
    const struct rdzv_record *record;
    const uint64_t job_id = action->job_id;
    const uint32_t generation = action->generation;

    if (action->type == RDZV_SEND_START) {
        record = rdzv_job_record(rdzv, job_id);
        assert(record != NULL && record->generation == generation);
        msg->type = MSG_TYPE_START;
        make_start(record, action->part, &msg->start);
    } else if (action->type == RDZV_SEND_BEAT_ACK) {
        msg->type = MSG_TYPE_BEAT_ACK;
        msg->beat_ack.sent_us = action->sent_us;
    } else if (action->type == RDZV_SEND_SLOT_RESUME) {
        msg->type = MSG_TYPE_SLOT_RESUME;
        msg->slot_resume = (struct msg_slot_resume){action->slot, action->incident};
    } else if (action->type == RDZV_SEND_WARM) {
        record = rdzv_job_record(rdzv, job_id);
        assert(record != NULL);
        msg->type = MSG_TYPE_WARM;
        msg->warm = (struct msg_warm){.job_id = job_id,
                                      .user = record->user,
                                      .slot_mask = action->slot_mask,
                                      .submitted_ms = record->submitted_ms};
    } else if (action->type == RDZV_SEND_COOL) {
        msg->type = MSG_TYPE_COOL;
        msg->cool = (struct msg_cool){job_id};
    } else if (action->type == RDZV_SEND_GO) {
        msg->type = MSG_TYPE_GO;
        msg->go = (struct msg_go){job_id, generation, action->text, action->master_port};
    } else if (action->type == RDZV_SEND_WORLD) {
        msg->type = MSG_TYPE_WORLD;
        msg->world = (struct msg_world){job_id, generation, action->blob};
    } else if (action->type == RDZV_SEND_STOP) {
        msg->type = MSG_TYPE_STOP;
        msg->stop = (struct msg_stop){job_id, generation, action->signal, action->grace_us,
                                      action->text != NULL ? action->text : ""};
    } else if (action->type == RDZV_SEND_FORGET) {
        msg->type = MSG_TYPE_FORGET;
        msg->forget = (struct msg_forget){job_id, generation};
    } else if (action->type == RDZV_SEND_REPORT_ACK) {
        msg->type = MSG_TYPE_REPORT_ACK;
        msg->report_ack = (struct msg_report_ack){job_id, generation, action->revision};
    } else {
        return false;
    }
    return true;
}

bool rdzv_is_for_node(enum rdzv_action_type type)
{
    switch (type) {
    case RDZV_SEND_WELCOME:
    case RDZV_SEND_BEAT_ACK:
    case RDZV_SEND_START:
    case RDZV_SEND_GO:
    case RDZV_SEND_WORLD:
    case RDZV_SEND_STOP:
    case RDZV_SEND_FORGET:
    case RDZV_SEND_REPORT_ACK:
    case RDZV_SEND_SLOT_RESUME:
    case RDZV_SEND_WARM:
    case RDZV_SEND_COOL:
    case RDZV_CLOSE_NODE:
        return true;
    case RDZV_PERSIST:
    case RDZV_PERSIST_RANKS:
    case RDZV_PERSIST_FAILURE:
    case RDZV_PERSIST_DRAINS:
    case RDZV_PERSIST_HOLD:
    case RDZV_PERSIST_GAP:
    case RDZV_PERSIST_LEASE:
    case RDZV_LOG_EVENT:
    case RDZV_REPLY_SUBMITTED:
    case RDZV_REPLY_CANCELLED:
    case RDZV_REPLY_NODE:
    case RDZV_REPLY_ERROR:
    case RDZV_LOOK:
    case RDZV_JOB_CHANGED:
    case RDZV_JOB_ENDED:
        break;
    }
    return false;
}
