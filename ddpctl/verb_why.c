/* ddpctl why: asks the server how a job failed and, if it is live, the nodes where its ranks stand.
 * Says what could not be asked, and shows the rest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddpctl/job_pages.h"
#include "ddpctl/page.h"
#include "ddpctl/request.h"
#include "ddpctl/verbs.h"
#include "ddpctl/why.h"
#include "ddpctl/why_ask.h"

#define PATIENCE_US 5000000u
#define NODES_ASKED 256u
#define DIALS_ASKED 4u /* ranks of a job that wait for another store do so for one reason */
#define EVENTS_PAGE 200u

struct why_run {
    struct ctl *ctl;
    struct why why;
    struct msg_why_info info;
    struct part_job job;
    struct part_failure failures[FAILURES_KEPT_MAX];
    struct part_failed_rank failed_ranks[FAILED_RANKS_MAX];
    struct part_rank_move moves[FAILED_RANKS_MAX];
    struct msg_nodes nodes;
    struct part_node node_items[NODES_ASKED];
    struct part_event cancel, unkept;
    uint64_t last_event;
    bool more_events; /* there are more after the last answer */
    struct job_pages pages;
    struct arena arena;
    bool failed; /* no memory */
};

static const char *keep(struct why_run *run, const char *text)
{
    const char *kept = arena_text(&run->arena, text, strlen(text));

    run->failed = run->failed || kept == NULL;
    return kept != NULL ? kept : "";
}

static void not_known(struct why_run *run, const char *what, const char *why)
{
    if (run->why.unknown_count < WHY_UNKNOWN_MAX)
        (void)snprintf(run->why.unknown[run->why.unknown_count++], WHY_UNKNOWN_BYTES,
                       "%.60s: %.255s", what, why);
}

static int ask(struct why_run *run, struct msg *msg, enum msg_type answer,
               int (*on_answer)(struct ctl *, const struct msg *, void *))
{
    struct request request = {.msg = msg,
                              .patience_us = PATIENCE_US,
                              .answer = answer,
                              .on_answer = on_answer,
                              .context = run};

    return request_run(run->ctl, &request);
}

/* -- the server --------------------------------------------------------------------------------- */

static void keep_job(struct why_run *run, const struct part_job *job)
{
    run->job = *job;
    run->job.name = keep(run, job->name);
    run->job.user = keep(run, job->user);
    run->job.where = keep(run, job->where);
    run->job.reason = keep(run, job->reason);
    run->job.straggler = keep(run, job->straggler);
}

static void keep_failure(struct why_run *run, uint32_t index, const struct part_failure *failure)
{
    struct part_failure *kept = &run->failures[index];

    *kept = *failure;
    kept->node = keep(run, failure->node);
    kept->core = keep(run, failure->core);
    kept->cause = keep(run, failure->cause);
    kept->tail = keep(run, failure->tail);
    kept->error = keep(run, failure->error);
    kept->stacks = keep(run, failure->stacks);
    kept->decision = keep(run, failure->decision);
}

static int on_why(struct ctl *ctl, const struct msg *msg, void *context)
{
    const struct msg_why_info *info = &msg->why_info;
    struct why_run *run = context;

    if (info->jobs.count != 1)
        return ctl_fail_unexpected(ctl, msg);
    run->info = *info;
    keep_job(run, &info->jobs.items[0]);
    run->info.jobs.items = &run->job;
    for (uint32_t i = 0; i < info->failures.count; i++)
        keep_failure(run, i, &info->failures.items[i]);
    run->info.failures.items = run->failures;
    for (uint32_t i = 0; i < info->ranks.count; i++) {
        run->failed_ranks[i] = info->ranks.items[i];
        run->failed_ranks[i].node = keep(run, info->ranks.items[i].node);
    }
    run->info.ranks.items = run->failed_ranks;
    for (uint32_t i = 0; i < info->moves.count; i++)
        run->moves[i] = info->moves.items[i];
    run->info.moves.items = run->moves;
    run->info.avoided = keep(run, info->avoided);
    run->why.info = &run->info;
    return CTL_OK;
}

static int on_nodes(struct ctl *ctl, const struct msg *msg, void *context)
{
    struct why_run *run = context;

    (void)ctl;
    run->nodes = (struct msg_nodes){.more = msg->nodes.more};
    for (uint32_t i = 0; i < msg->nodes.nodes.count && i < NODES_ASKED; i++) {
        run->node_items[i] = msg->nodes.nodes.items[i];
        run->node_items[i].name = keep(run, msg->nodes.nodes.items[i].name);
        run->node_items[i].drained_by = keep(run, msg->nodes.nodes.items[i].drained_by);
        run->nodes.nodes.count = i + 1;
    }
    run->nodes.nodes.items = run->node_items;
    run->why.nodes = &run->nodes;
    return CTL_OK;
}

static int on_events(struct ctl *ctl, const struct msg *msg, void *context)
{
    struct why_run *run = context;
    const uint64_t before = run->last_event;
    const uint32_t count = msg->events.events.count;

    (void)ctl;
    for (uint32_t i = 0; i < count; i++) {
        const struct part_event *event = &msg->events.events.items[i];

        run->last_event = event->id;
        if (strstr(event->text, " is not stored: ") != NULL) {
            run->unkept = *event;
            run->unkept.text = keep(run, event->text);
            run->why.unkept = &run->unkept;
        }
        if (strncmp(event->text, "cancel was asked for", 20) != 0)
            continue;
        run->cancel = *event;
        run->cancel.text = keep(run, event->text);
        run->why.cancel = &run->cancel;
    }
    run->more_events = page_goes_on(count == EVENTS_PAGE, before, run->last_event);
    return CTL_OK;
}

static int ask_events(struct why_run *run)
{
    int rc;

    do {
        struct msg msg = {.type = MSG_TYPE_EVENT_LIST,
                          .event_list = {.job_id = run->job.job_id,
                                         .after_id = run->last_event,
                                         .limit = EVENTS_PAGE}};

        rc = ask(run, &msg, MSG_TYPE_EVENTS, on_events);
    } while (rc == CTL_OK && run->more_events);
    return rc;
}

static int ask_nodes(struct why_run *run)
{
    struct msg msg = {.type = MSG_TYPE_NODE_LIST,
                      .node_list = {.all = true, .node = "", .after = "", .limit = NODES_ASKED}};

    return ask(run, &msg, MSG_TYPE_NODES, on_nodes);
}

static int ask_ranks(struct why_run *run)
{
    char job[24];
    struct msg msg = {.type = MSG_TYPE_JOB_GET, .job_get = {.job = job}};
    struct request request = {.msg = &msg, .patience_us = PATIENCE_US, .answer = MSG_TYPE_JOB_INFO};
    int rc;

    (void)snprintf(job, sizeof job, "%llu", (unsigned long long)run->job.job_id);
    rc = job_pages_read(run->ctl, &request, &run->pages);
    if (rc == CTL_OK)
        run->why.job = &run->pages.info;
    return rc;
}

/* -- the nodes ---------------------------------------------------------------------------------- */

/* Chooses the ranks whose stacks are shown: those that the others wait for, then those without
 * progress for longest, then the first ones; at most WHY_STACKS_MAX. */
static uint32_t choose_ranks(const struct why_run *run, uint32_t chosen[WHY_STACKS_MAX])
{
    uint32_t world = run->job.nodes * run->job.nproc_per_node, count = 0;
    bool *marks = calloc(world, sizeof *marks), *taken = calloc(world, sizeof *taken);

    if (marks != NULL && taken != NULL)
        (void)why_blockers(&run->why, marks, world);
    for (int turn = 0; marks != NULL && taken != NULL && turn < 3; turn++) {
        uint32_t candidates = turn == 1 ? run->info.moves.count : world;

        for (uint32_t i = 0; i < candidates && count < WHY_STACKS_MAX; i++) {
            uint32_t rank = turn == 1 ? run->info.moves.items[i].rank : i;

            if (rank >= world || taken[rank] || (turn == 0 && !marks[rank]))
                continue;
            taken[rank] = true;
            chosen[count++] = rank;
        }
    }
    free(marks);
    free(taken);
    return count;
}

static void take_stack(struct why_run *run, const struct why_question *question)
{
    struct err err = {.text = ""};
    char what[64];

    (void)snprintf(what, sizeof what, "where rank %u stands", question->rank);
    if (question->problem[0] != '\0') {
        not_known(run, what, question->problem);
        return;
    }
    if (why_stack_parse(question->answer.bytes, question->answer.byte_count, question->rank,
                        &run->arena, &run->why.stacks[run->why.stack_count], &err) == STATUS_OK)
        run->why.stack_count++;
    else
        not_known(run, what, err.text);
}

/* `shows`: they are shown, and not only looked through for ranks that wait for another store. */
static void ask_stacks(struct why_run *run, bool shows)
{
    struct why_question questions[WHY_STACKS_MAX] = {0};
    uint32_t ranks[WHY_STACKS_MAX], count = choose_ranks(run, ranks);

    if (!shows && count > DIALS_ASKED)
        count = DIALS_ASKED;
    for (uint32_t i = 0; i < count; i++)
        questions[i] = (struct why_question){.rank = ranks[i], .what = LOG_STACK};
    if (count > 0)
        why_ask(run->ctl, run->job.job_id, run->job.generation, questions, count);
    for (uint32_t i = 0; i < count; i++)
        take_stack(run, &questions[i]);
    for (uint32_t i = 0; i < run->why.stack_count; i++)
        if (run->why.stacks[i].dial_pid > 0)
            run->why.dials[run->why.dial_count++] =
                (struct why_dial){.rank = run->why.stacks[i].rank,
                                  .pid = run->why.stacks[i].dial_pid,
                                  .to = run->why.stacks[i].dial_to};
    if (!shows)
        run->why.stack_count = 0;
    why_ask_free(questions, count);
}

static void ask_store(struct why_run *run)
{
    struct why_question question = {.what = LOG_STORE};
    struct err err = {.text = ""};

    why_ask(run->ctl, run->job.job_id, run->job.generation, &question, 1);
    if (question.problem[0] != '\0') {
        if (strstr(question.problem, "has no store here") == NULL) /* ddp-worker uses none */
            not_known(run, "who waits for whom in the c10d store", question.problem);
    } else if (why_store_parse(question.answer.bytes, question.answer.byte_count, run->why.job,
                               &run->arena, &run->why.store, &err) != STATUS_OK)
        not_known(run, "who waits for whom in the c10d store", err.text);
    why_ask_free(&question, 1);
}

/* -- the verb ----------------------------------------------------------------------------------- */

static int ask_server(struct why_run *run)
{
    struct msg msg = {
        .type = MSG_TYPE_WHY_GET,
        .why_get = {.job = run->ctl->words[0], .ranks_of = run->ctl->options.generation}};
    int rc = ask(run, &msg, MSG_TYPE_WHY_INFO, on_why);

    if (rc == CTL_OK && (run->job.state == JOB_QUEUED || run->job.state == JOB_RESTARTING))
        rc = ask_nodes(run);
    if (rc == CTL_OK && run->job.ended)
        rc = ask_events(run);
    if (rc == CTL_OK && (run->job.state == JOB_STARTING || run->job.state == JOB_RUNNING))
        rc = ask_ranks(run);
    return rc;
}

static int show(struct why_run *run)
{
    struct output_style style = screen_style(&run->ctl->screen);
    struct buf out = {0};
    int rc;

    if (run->ctl->screen.json)
        why_json(&run->why, &out);
    else
        why_text(&run->why, &style, &out);
    if (run->failed || out.failed)
        rc = ctl_fail(run->ctl, CTL_FAILED, "out of memory", "");
    else
        rc = screen_out(&run->ctl->screen, &out) == STATUS_OK ? CTL_OK : CTL_FAILED;
    buf_free(&out);
    return rc;
}

int verb_why(struct ctl *ctl)
{
    struct why_run *run;
    bool shows;
    int rc = verb_need_one_job(ctl);

    if (rc != CTL_OK)
        return rc;
    run = calloc(1, sizeof *run);
    if (run == NULL)
        return ctl_fail(ctl, CTL_FAILED, "out of memory", "");
    run->ctl = ctl;
    run->why.store.address = "";
    run->why.generation = ctl->options.generation;
    rc = ask_server(run);
    if (rc == CTL_OK && run->why.job != NULL && run->job.state == JOB_RUNNING &&
        run->why.generation == 0) {
        ask_store(run);
        shows = ctl->options.stacks || why_stands_still(&run->info);
        if (shows || why_may_dial(&run->why))
            ask_stacks(run, shows);
    }
    if (rc == CTL_OK)
        rc = show(run);
    job_pages_free(&run->pages);
    arena_reset(&run->arena);
    free(run);
    return rc;
}
