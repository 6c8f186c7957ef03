#include "tests/lib/store_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIG_BYTES 200000u

static const struct store_viewer everyone = {.sees_all = true};

uint64_t model_draw(struct model_random *random, uint64_t limit)
{
    random->state = random->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random->state >> 33) % limit;
}

void model_init(struct model *model)
{
    memset(model, 0, sizeof *model);
    model->next_job_id = 1;
}

/* -- what a job looks like --------------------------------------------------------------------- */

static void request_of(const struct model_job *job, char text[REQUEST_ID_CHARS + 1])
{
    (void)snprintf(text, REQUEST_ID_CHARS + 1, "%032llx", (unsigned long long)job->job_id);
}

static void fill_record(const struct model_job *job, struct rdzv_record *record,
                        struct rdzv_part parts[2])
{
    memset(record, 0, sizeof *record);
    record->job_id = job->job_id;
    request_of(job, record->request_id);
    (void)snprintf(record->name, sizeof record->name, "job-%llu", (unsigned long long)job->job_id);
    (void)snprintf(record->user, sizeof record->user, "user%llu",
                   (unsigned long long)job->job_id % 3);
    record->nodes = 2;
    record->nproc_per_node = 2;
    record->state = job->state;
    record->generation = job->generation;
    record->step = record->checkpoint_step = job->step;
    record->failed_rank = -1;
    record->ended_ms = rdzv_state_is_final(job->state) ? 1000 + (int64_t)job->job_id : 0;
    record->parts = parts;
    record->part_count = job->state == JOB_RUNNING ? 2 : 0;
    for (uint32_t i = 0; i < 2; i++) {
        parts[i] = (struct rdzv_part){.rank_base = 2 * i, .local_count = 2, .slot_mask = 3};
        (void)snprintf(parts[i].node, sizeof parts[i].node, "node%u", i);
    }
}

static char *env_value(const struct model_job *job)
{
    char *text = malloc(job->env_bytes + 1);

    if (text == NULL)
        abort();
    memset(text, 'a' + (int)(job->job_id % 26), job->env_bytes);
    text[job->env_bytes] = '\0';
    return text;
}

/* -- changes ----------------------------------------------------------------------------------- */

static void write_event(struct model *model, struct store *store)
{
    char text[64];

    (void)snprintf(text, sizeof text, "event %llu", (unsigned long long)model->last_event_id + 1);
    model->last_event_id = store_write_event(store, 1, 0, 0, text);
}

static void write_record(const struct model_job *job, struct store *store)
{
    struct rdzv_record record;
    struct rdzv_part parts[2];

    fill_record(job, &record, parts);
    store_write_job(store, &record);
}

static void submit(struct model *model, struct model_job *job, struct store *store, bool is_big)
{
    static const char *const argv[] = {"python", "train.py"};
    char request_id[REQUEST_ID_CHARS + 1], user[32];
    struct msg_pair env = {.name = "WORDS"};
    char *value;
    struct msg_submit wanted = {
        .name = "job", .nodes = 2, .nproc_per_node = 2, .cwd = "/home/x", .array = ""};

    *job = (struct model_job){.job_id = model->next_job_id++, .state = JOB_QUEUED};
    job->env_bytes = is_big ? BIG_BYTES : 40;
    value = env_value(job);
    env.value = value;
    request_of(job, request_id);
    (void)snprintf(user, sizeof user, "user%llu", (unsigned long long)job->job_id % 3);
    wanted.request_id = request_id;
    wanted.argv = (struct msg_text_list){argv, 2};
    wanted.env = (struct msg_pair_list){&env, 1};
    write_record(job, store);
    store_write_spec(store, job->job_id, user, &wanted);
    free(value);
    write_event(model, store);
}

static void end_job(struct model_job *job, struct model_random *random, struct store *store)
{
    struct rdzv_record record;
    struct rdzv_part parts[2];
    struct rdzv_rank ranks[4];

    job->exit_code = (int32_t)model_draw(random, 3);
    for (uint32_t i = 0; i < 4; i++)
        ranks[i] = (struct rdzv_rank){
            .pid = 100 + i, .state = RANK_EXITED, .exit_code = (uint8_t)job->exit_code};
    fill_record(job, &record, parts);
    store_write_ranks(store, job->job_id, job->generation, parts, 2, ranks,
                      (struct store_clock){0});
    job->state = job->exit_code == 0 ? JOB_SUCCEEDED : JOB_FAILED;
    write_record(job, store);
}

static void change_job(struct model *model, struct model_random *random, struct store *store,
                       bool big)
{
    struct model_job *job = &model->jobs[model_draw(random, MODEL_JOBS_MAX)];

    if (job->job_id == 0 || rdzv_state_is_final(job->state)) {
        for (job = model->jobs; job < model->jobs + MODEL_JOBS_MAX && job->job_id != 0; job++)
            ;
        if (job < model->jobs + MODEL_JOBS_MAX)
            submit(model, job, store, big && model_draw(random, 2) == 0);
        return;
    }
    if (job->state == JOB_RUNNING && model_draw(random, 3) == 0) {
        end_job(job, random, store);
        return;
    }
    if (job->state == JOB_RUNNING)
        job->step += 1 + model_draw(random, 100);
    else
        job->generation++;
    job->state = JOB_RUNNING;
    write_record(job, store);
}

static void change_drains(struct model *model, struct model_random *random, struct store *store)
{
    struct rdzv_drain drains[MODEL_DRAINS_MAX];

    memset(drains, 0, sizeof drains);
    model->drain_count = (uint32_t)model_draw(random, MODEL_DRAINS_MAX + 1);
    for (uint32_t i = 0; i < model->drain_count; i++) {
        model->drain_at_ms[i] = 1 + model_draw(random, 1000000);
        (void)snprintf(drains[i].node, sizeof drains[i].node, "d%u", i);
        (void)snprintf(drains[i].reason, sizeof drains[i].reason, "fan %u", i);
        drains[i].at_ms = (int64_t)model->drain_at_ms[i];
    }
    store_write_drains(store, drains, model->drain_count);
}

static void change_principal(struct model *model, struct model_random *random, struct store *store)
{
    uint32_t i = (uint32_t)model_draw(random, MODEL_PRINCIPALS_MAX);
    struct store_principal principal = {.role = ROLE_NODE, .secret_count = 1};

    (void)snprintf(principal.name, sizeof principal.name, "p%u", i);
    if (model->principal_made_ms[i] != 0 && model_draw(random, 2) == 0) {
        model->principal_made_ms[i] = 0;
        store_drop_principal(store, principal.name);
        return;
    }
    model->principal_made_ms[i] = 1 + model_draw(random, 1000000);
    principal.created_ms = (int64_t)model->principal_made_ms[i];
    memset(principal.secrets[0].bytes, (int)(principal.created_ms % 256), KEY_SECRET_BYTES);
    store_write_principal(store, &principal);
}

/* Removes all ended jobs except the newest of all jobs. */
static void expire(struct model *model, struct store *store)
{
    uint64_t after_id = 0;
    bool is_at_end = false;

    while (!is_at_end)
        (void)store_expire(store, INT64_MAX, NULL, NULL, &after_id, &is_at_end);
    for (uint32_t i = 0; i < MODEL_JOBS_MAX; i++)
        if (rdzv_state_is_final(model->jobs[i].state) &&
            model->jobs[i].job_id + 1 < model->next_job_id)
            model->jobs[i] = (struct model_job){.job_id = 0};
}

void model_change(struct model *model, struct model_random *random, struct store *store, bool big)
{
    switch (model_draw(random, 16)) {
    case 0:
        change_drains(model, random, store);
        return;
    case 1:
    case 2:
        change_principal(model, random, store);
        return;
    case 3:
        expire(model, store);
        return;
    case 4:
    case 5:
        write_event(model, store);
        return;
    default:
        change_job(model, random, store, big);
        return;
    }
}

/* -- comparing --------------------------------------------------------------------------------- */

struct difference {
    const struct model *model;
    char *text;
    size_t text_bytes;
    bool found;
    uint64_t seen;
};

#define DIFFERS(difference, ...)                                                                   \
    do {                                                                                           \
        if (!(difference)->found)                                                                  \
            (void)snprintf((difference)->text, (difference)->text_bytes, __VA_ARGS__);             \
        (difference)->found = true;                                                                \
    } while (0)

static bool same_record(const struct rdzv_record *a, const struct rdzv_record *b)
{
    bool same = a->job_id == b->job_id && strcmp(a->request_id, b->request_id) == 0 &&
                strcmp(a->name, b->name) == 0 && strcmp(a->user, b->user) == 0 &&
                a->state == b->state && a->generation == b->generation && a->step == b->step &&
                a->checkpoint_step == b->checkpoint_step && a->ended_ms == b->ended_ms &&
                a->part_count == b->part_count;

    for (uint32_t i = 0; same && i < a->part_count; i++)
        same = strcmp(a->parts[i].node, b->parts[i].node) == 0 &&
               a->parts[i].slot_mask == b->parts[i].slot_mask;
    return same;
}

static void compare_job(const struct rdzv_record *stored, void *context)
{
    struct difference *difference = context;
    const struct model_job *job = difference->model->jobs;
    struct rdzv_record wanted;
    struct rdzv_part parts[2];
    uint32_t i = 0;

    difference->seen++;
    while (i < MODEL_JOBS_MAX && job[i].job_id != stored->job_id)
        i++;
    if (i == MODEL_JOBS_MAX) {
        DIFFERS(difference, "job %llu is there, and was never acknowledged or is removed",
                (unsigned long long)stored->job_id);
        return;
    }
    fill_record(&job[i], &wanted, parts);
    if (!same_record(&wanted, stored))
        DIFFERS(difference, "job %llu: state %d, generation %u, step %llu; wanted %d, %u, %llu",
                (unsigned long long)stored->job_id, (int)stored->state, stored->generation,
                (unsigned long long)stored->step, (int)wanted.state, wanted.generation,
                (unsigned long long)wanted.step);
}

/* Compares a job's command, its request id and the rows of its ranks. */
static void compare_rest(const struct model_job *job, struct store *store,
                         struct difference *difference)
{
    char request_id[REQUEST_ID_CHARS + 1], user[32], *value = env_value(job);
    struct part_job_rank ranks[8] = {{.exit_code = -1}};
    struct arena arena = {0};
    struct store_spec spec = {.cwd = NULL};
    uint64_t found = 0;

    request_of(job, request_id);
    (void)snprintf(user, sizeof user, "user%llu", (unsigned long long)job->job_id % 3);
    if (!store_find_request(store, request_id, user, &found) || found != job->job_id)
        DIFFERS(difference, "job %llu: its request id leads to %llu",
                (unsigned long long)job->job_id, (unsigned long long)found);
    if (store_spec(store, job->job_id, true, &arena, &spec) != STATUS_OK || spec.argv.count != 2 ||
        spec.env.count != !rdzv_state_is_final(job->state) ||
        (spec.env.count == 1 && strcmp(spec.env.items[0].value, value) != 0))
        DIFFERS(difference, "job %llu: its command is not as submitted",
                (unsigned long long)job->job_id);
    for (uint32_t generation = 1; generation <= job->generation; generation++)
        if (store_ranks(store, job->job_id, generation, 0, &arena, ranks, 8) != 4)
            DIFFERS(difference, "job %llu: ranks of generation %u are missing",
                    (unsigned long long)job->job_id, generation);
    if (rdzv_state_is_final(job->state) && ranks[0].exit_code != job->exit_code)
        DIFFERS(difference, "job %llu: its ranks ended with %d, wanted %d",
                (unsigned long long)job->job_id, ranks[0].exit_code, job->exit_code);
    arena_reset(&arena);
    free(value);
}

static void compare_principal(const struct store_principal *principal, void *context)
{
    struct difference *difference = context;
    uint32_t i = (uint32_t)strtoul(principal->name + 1, NULL, 10);

    difference->seen++;
    if (i >= MODEL_PRINCIPALS_MAX ||
        difference->model->principal_made_ms[i] != (uint64_t)principal->created_ms ||
        principal->secret_count != 1 ||
        principal->secrets[0].bytes[0] != (uint8_t)(principal->created_ms % 256))
        DIFFERS(difference, "principal %s is not as written", principal->name);
}

static void compare_drains(struct store *store, struct difference *difference)
{
    const struct model *model = difference->model;
    struct rdzv_drain drains[MODEL_DRAINS_MAX + 1];
    uint32_t count = store_drains(store, drains, MODEL_DRAINS_MAX + 1);

    if (count != model->drain_count)
        DIFFERS(difference, "%u drains, wanted %u", count, model->drain_count);
    for (uint32_t i = 0; i < count && i < model->drain_count; i++)
        if ((uint64_t)drains[i].at_ms != model->drain_at_ms[i])
            DIFFERS(difference, "drain %s is not as written", drains[i].node);
}

static void compare_events(struct store *store, struct difference *difference)
{
    uint64_t wanted = 1, last = difference->model->last_event_id;
    struct part_event events[64];
    struct arena arena = {0};
    uint32_t count;
    char text[64];

    do {
        count = store_events(store, everyone, 0, wanted - 1, 64, &arena, events);
        for (uint32_t i = 0; i < count; i++, wanted++) {
            (void)snprintf(text, sizeof text, "event %llu", (unsigned long long)wanted);
            if (events[i].id != wanted || strcmp(events[i].text, text) != 0)
                DIFFERS(difference, "event %llu is \"%s\"", (unsigned long long)wanted,
                        events[i].text);
        }
        arena_reset(&arena);
    } while (count == 64);
    if (wanted != last + 1)
        DIFFERS(difference, "%llu events, wanted %llu", (unsigned long long)wanted - 1,
                (unsigned long long)last);
}

/* What each user has. The spec is /home/x ["python","train.py"] {"WORDS":"..."} {}, and {} in place of its variables
 * when the job has ended. */
static void compare_usage(const struct model *model, struct store *store,
                          struct difference *difference)
{
    for (uint32_t user = 0; user < 3; user++) {
        uint64_t wanted = 0, has;
        char name[32];

        for (uint32_t i = 0; i < MODEL_JOBS_MAX; i++) {
            const struct model_job *job = &model->jobs[i];

            if (job->job_id != 0 && job->job_id % 3 == user)
                wanted += STORE_JOB_BYTES + 128u * 4 * job->generation + 7 + 21 + 2 +
                          (rdzv_state_is_final(job->state) ? 2 : 12 + job->env_bytes);
        }
        (void)snprintf(name, sizeof name, "user%u", user);
        has = store_user_bytes(store, name);
        if (has != wanted)
            DIFFERS(difference, "%s has %llu bytes, wanted %llu", name, (unsigned long long)has,
                    (unsigned long long)wanted);
    }
}

bool model_matches(const struct model *model, struct store *store, char *text, size_t text_bytes)
{
    struct difference difference = {.model = model, .text = text, .text_bytes = text_bytes};
    uint64_t wanted = 0;

    store_list(store, everyone, 0, UINT32_MAX, compare_job, &difference);
    for (uint32_t i = 0; i < MODEL_JOBS_MAX && !difference.found; i++)
        if (model->jobs[i].job_id != 0) {
            wanted++;
            compare_rest(&model->jobs[i], store, &difference);
        }
    if (difference.seen != wanted)
        DIFFERS(&difference, "%llu jobs, wanted %llu", (unsigned long long)difference.seen,
                (unsigned long long)wanted);
    difference.seen = wanted = 0;
    (void)store_principals(store, compare_principal, &difference);
    for (uint32_t i = 0; i < MODEL_PRINCIPALS_MAX; i++)
        wanted += model->principal_made_ms[i] != 0;
    if (difference.seen != wanted)
        DIFFERS(&difference, "%llu principals, wanted %llu", (unsigned long long)difference.seen,
                (unsigned long long)wanted);
    compare_drains(store, &difference);
    compare_usage(model, store, &difference);
    compare_events(store, &difference);
    if (store_next_job_id(store) != model->next_job_id)
        DIFFERS(&difference, "the next job is %llu, wanted %llu",
                (unsigned long long)store_next_job_id(store),
                (unsigned long long)model->next_job_id);
    return !difference.found;
}
