/* From which checkpoint the ranks go on: cases by hand, then properties over random worlds. */
#include "worker/train/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"

enum { WORLD_MAX = 12, WORLDS = 200000 };

static struct agree_report reports[WORLD_MAX];
static uint32_t receivers[WORLD_MAX];
static struct err err;

/* "a20 -- b -- c15": a rank each; a letter: it speaks for the folder of that node, with the newest
 * step if there is a number; "c15!": of another job; "--": it does not speak. */
static struct agree_question world_of(const char *text, uint32_t copies, uint64_t known_step)
{
    uint32_t world = 0;

    memset(reports, 0, sizeof reports);
    for (; *text != '\0'; world++) {
        const size_t bytes = strcspn(text, " ");
        struct agree_report *report = &reports[world];

        report->folder = *text == '-' ? AGREE_NO_FOLDER : world;
        report->node[0] = *text;
        report->has_checkpoint = *text != '-' && bytes > 1;
        report->is_of_job = memchr(text, '!', bytes) == NULL;
        if (report->has_checkpoint)
            report->step = (uint32_t)strtoul(text + 1, NULL, 10);
        text += bytes + strspn(text + bytes, " ");
    }
    return (struct agree_question){.reports = reports,
                                   .world = world,
                                   .path = "ckpt",
                                   .copies = copies,
                                   .known_step = known_step};
}

/* The answer as text: "20 from 2 to 0 4", "start" or the error's status. */
static const char *answer_to(struct agree_question question)
{
    static char text[256];
    struct agree_answer answer = {.receivers = receivers};
    const enum status status = agree(&question, &answer, &err);
    size_t used;

    if (status != STATUS_OK)
        return status_name(status);
    if (!answer.resumes)
        return "start";
    used = (size_t)snprintf(text, sizeof text, "%u from %u to", answer.step, answer.source);
    for (uint32_t i = 0; i < answer.receiver_count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, " %u", answer.receivers[i]);
    (void)snprintf(text + used, sizeof text - used, "%s", answer.is_older ? " (older)" : "");
    return text;
}

TEST(the_newest_wins_and_goes_to_who_lacks_it)
{
    CHECK_STR(answer_to(world_of("a20 -- b20 --", AGREE_ALL, 20)), "20 from 0 to");
    CHECK_STR(answer_to(world_of("a -- b20 --", AGREE_ALL, 20)), "20 from 2 to 0");
    CHECK_STR(answer_to(world_of("a10 -- b20 -- c --", AGREE_ALL, 20)), "20 from 2 to 0 4");
    CHECK_STR(answer_to(world_of("a20 b c", AGREE_ALL, 20)), "20 from 0 to 1 2");
    CHECK_STR(answer_to(world_of("a20 b c", 1, 20)), "20 from 0 to 1");
    CHECK_STR(answer_to(world_of("a b c20", 1, 20)), "20 from 2 to 0 1");
    CHECK_STR(answer_to(world_of("a20 -- -- --", AGREE_ALL, 20)), "20 from 0 to");
}

TEST(this_job_comes_before_others)
{
    CHECK_STR(answer_to(world_of("a90! b20", AGREE_ALL, 20)), "20 from 1 to 0");
    CHECK_STR(answer_to(world_of("a90! b", AGREE_ALL, 0)), "90 from 0 to 1");
    CHECK_STR(answer_to(world_of("a20! b20", AGREE_ALL, 20)), "20 from 1 to 0");
}

TEST(without_copies_nothing_is_sent)
{
    CHECK_STR(answer_to(world_of("a20 b10", 0, 20)), "20 from 0 to");
    CHECK_STR(answer_to(world_of("a10 b20", 0, 20)), "CONFLICT");
    CHECK_STR(err.text, "checkpoint step 20 is on node b (rank 1), rank 0 is now on node a, and "
                        "--checkpoint-copies 0 sends nothing: share ckpt, or allow copies");
}

TEST(never_from_the_start_after_a_commit)
{
    CHECK_STR(answer_to(world_of("a b", AGREE_ALL, 0)), "start");
    CHECK_STR(answer_to(world_of("a b", AGREE_ALL, 1200)), "NOT_FOUND");
    CHECK_STR(err.text,
              "this job has committed step 1200, but no rank finds a checkpoint in ckpt: "
              "share that folder or raise --checkpoint-copies; --resume none starts over");
    CHECK_STR(answer_to(world_of("a", AGREE_ALL, 1)), "NOT_FOUND");
    CHECK_STR(answer_to(world_of("a10 b", AGREE_ALL, 20)), "10 from 0 to 1 (older)");
    CHECK_STR(answer_to(world_of("a30 b", AGREE_ALL, 20)), "30 from 0 to 1");
}

static uint32_t draw(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (uint32_t)(*seed >> 33) % below;
}

static struct agree_question draw_world(uint64_t *seed)
{
    struct agree_question question = {.reports = reports, .path = "ckpt"};

    memset(reports, 0, sizeof reports);
    question.world = 1 + draw(seed, WORLD_MAX);
    question.copies = draw(seed, 3) == 0 ? AGREE_ALL : draw(seed, 4);
    question.known_step = draw(seed, 3) == 0 ? 0 : draw(seed, 5);
    for (uint32_t i = 0; i < question.world; i++) {
        struct agree_report *report = &reports[i];

        report->folder = draw(seed, 3) == 0 && i > 0 ? draw(seed, i) : i;
        report->folder = draw(seed, 4) == 0 && i > 0 ? AGREE_NO_FOLDER : report->folder;
        report->has_checkpoint = draw(seed, 2) == 0;
        report->is_of_job = draw(seed, 3) > 0;
        report->step = 1 + draw(seed, 4);
    }
    return question;
}

/* What the receivers are: a receiver speaks for a folder, lacks it, and is there once, rising. */
static void check_receivers(const struct agree_question *question,
                            const struct agree_answer *answer)
{
    for (uint32_t i = 0; i < answer->receiver_count; i++) {
        const uint32_t rank = answer->receivers[i];
        const struct agree_report *report = &reports[rank];

        CHECK(rank < question->world && report->folder == rank && rank != answer->source);
        CHECK(i == 0 || rank > answer->receivers[i - 1]);
        CHECK(!report->has_checkpoint || report->is_of_job != answer->is_of_job ||
              report->step != answer->step);
    }
}

/* After the sending rank 0 has the newest, and so have the ranks that are to have copies. */
static void check_holders(const struct agree_question *question, const struct agree_answer *answer)
{
    uint32_t ranks[WORLD_MAX + 1] = {0};
    const uint32_t copies = agree_copies(question, ranks + 1);

    for (uint32_t i = 0; i <= copies; i++) {
        const struct agree_report *report = &reports[ranks[i]];
        bool has = report->has_checkpoint && report->is_of_job == answer->is_of_job &&
                   report->step == answer->step;

        for (uint32_t j = 0; j < answer->receiver_count; j++)
            has = has || answer->receivers[j] == ranks[i];
        CHECK(has);
    }
}

TEST(in_any_world)
{
    uint64_t seed = 1;
    uint32_t resumed = 0, refused = 0, started = 0;

    for (uint32_t n = 0; n < WORLDS; n++) {
        const struct agree_question question = draw_world(&seed);
        struct agree_answer answer = {.receivers = receivers};
        const enum status status = agree(&question, &answer, &err);
        bool anybody = false, own = false;

        for (uint32_t i = 0; i < question.world; i++)
            if (reports[i].folder == i && reports[i].has_checkpoint) {
                anybody = true;
                own = own || reports[i].is_of_job;
            }
        CHECK(anybody || question.known_step == 0 || status == STATUS_NOT_FOUND);
        CHECK(anybody || question.known_step > 0 || (status == STATUS_OK && !answer.resumes));
        started += status == STATUS_OK && !answer.resumes;
        refused += status != STATUS_OK;
        if (!anybody)
            continue;
        CHECK(status == STATUS_OK || (status == STATUS_CONFLICT && question.copies == 0));
        if (status != STATUS_OK)
            continue;
        resumed++;
        CHECK(answer.resumes && answer.is_of_job == own);
        CHECK(question.copies > 0 || (answer.source == 0 && answer.receiver_count == 0));
        for (uint32_t i = 0; i < question.world; i++)
            CHECK(reports[i].folder != i || !reports[i].has_checkpoint ||
                  reports[i].is_of_job != own || reports[i].step <= answer.step);
        check_receivers(&question, &answer);
        check_holders(&question, &answer);
    }
    CHECK(resumed > WORLDS / 4 && refused > WORLDS / 100 && started > WORLDS / 100);
}

TEST_MAIN
