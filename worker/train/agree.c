#include "worker/train/agree.h"

#include <assert.h>
#include <inttypes.h>

static bool is_newer(const struct agree_report *a, const struct agree_report *b)
{
    return a->is_of_job != b->is_of_job ? a->is_of_job : a->step > b->step;
}

static bool is_equal(const struct agree_report *a, const struct agree_report *b)
{
    return a->has_checkpoint && b->has_checkpoint && !is_newer(a, b) && !is_newer(b, a);
}

/* The rank with the newest checkpoint; of several the first, so rank 0 if it has it.
 * AGREE_NO_FOLDER: none has one. */
static uint32_t find_newest(const struct agree_question *question)
{
    const struct agree_report *reports = question->reports;
    uint32_t newest = AGREE_NO_FOLDER;

    for (uint32_t i = 0; i < question->world; i++)
        if (reports[i].folder == i && reports[i].has_checkpoint &&
            (newest == AGREE_NO_FOLDER || is_newer(&reports[i], &reports[newest])))
            newest = i;
    return newest;
}

uint32_t agree_copies(const struct agree_question *question, uint32_t *ranks)
{
    uint32_t count = 0;

    for (uint32_t i = 1; i < question->world && count < question->copies; i++)
        if (question->reports[i].folder == i)
            ranks[count++] = i;
    return count;
}

static enum status refuse_none(const struct agree_question *question, struct err *err)
{
    return err_set(err, STATUS_NOT_FOUND, 0,
                   "this job has committed step %" PRIu64
                   ", but no rank finds a checkpoint in %.80s: share that folder or raise "
                   "--checkpoint-copies; --resume none starts over",
                   question->known_step, question->path);
}

/* No rank has a complete checkpoint. If there are damaged files, their owner must decide: training
 * does not start anew by itself. */
static enum status check_none(const struct agree_question *question, struct err *err)
{
    for (uint32_t i = 0; i < question->world; i++)
        if (question->reports[i].is_damaged && !question->starts_if_damaged)
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "no checkpoint in %.80s is whole (the warnings before say why; node "
                           "%.40s, rank %u): --from-start-if-damaged starts over, and moves them "
                           "away",
                           question->path, question->reports[i].node, i);
    return question->known_step > 0 ? refuse_none(question, err) : STATUS_OK;
}

static enum status refuse_copy(const struct agree_question *question, uint32_t newest,
                               struct err *err)
{
    const struct agree_report *there = &question->reports[newest], *here = question->reports;

    return err_set(err, STATUS_CONFLICT, 0,
                   "checkpoint step %u is on node %.40s (rank %u), rank 0 is now on node %.40s, "
                   "and --checkpoint-copies 0 sends nothing: share %.60s, or allow copies",
                   there->step, there->node, newest, here->node, question->path);
}

enum status agree(const struct agree_question *question, struct agree_answer *answer,
                  struct err *err)
{
    const struct agree_report *reports = question->reports;
    const uint32_t newest = find_newest(question);
    uint32_t *receivers = answer->receivers, wanted;

    assert(question->world > 0 && reports[0].folder == 0);
    *answer = (struct agree_answer){.receivers = receivers};
    if (newest == AGREE_NO_FOLDER)
        return check_none(question, err);
    answer->resumes = true;
    answer->step = reports[newest].step;
    answer->is_of_job = reports[newest].is_of_job;
    answer->is_older = answer->step < question->known_step;
    answer->source = newest;
    if (newest != 0 && question->copies == 0)
        return refuse_copy(question, newest, err);
    wanted = agree_copies(question, receivers + 1);
    receivers[0] = 0;
    for (uint32_t i = 0; i <= wanted; i++)
        if (!is_equal(&reports[receivers[i]], &reports[newest]))
            receivers[answer->receiver_count++] = receivers[i];
    return STATUS_OK;
}
