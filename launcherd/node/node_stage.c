#include "launcherd/node/node_stage.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/frame.h"
#include "common/log.h"
#include "common/stage.h"
#include "launcherd/node/archive_files.h"
#include "launcherd/node/node_start.h"
#include "launcherd/process/rundir.h"

#define ANSWER_MS 60000u                /* the start fails after this long without a piece */
#define CACHE_BYTES_MAX (1024ull << 20) /* of archives that are kept for later jobs */
#define TOO_MUCH "too much waits for the disks already"

/* A start order that waits for its archive. */
struct stage_order {
    struct stage_order *next;
    uint64_t job_id;
    uint32_t generation;
    char hash[STAGE_HASH_CHARS + 1];
    struct file_work *check; /* a thread looks whether it is here; NULL: it is not */
    struct buf frame;        /* the order as a frame: it borrows from nothing */
};

void node_stage_init(struct node_stage *stage, const struct node_host *host,
                     struct node_shims *shims)
{
    *stage = (struct node_stage){.host = host, .shims = shims, .fd = -1};
    rundir_join(stage->dir, host->state_dir, "stage");
    uv_timer_init(host->loop, &stage->timer);
    stage->timer.data = stage;
}

static void order_free(struct stage_order *order)
{
    buf_free(&order->frame);
    free(order);
}

/* -- the fetch ------------------------------------------------------------------------------------ */

/* Work on the archive that is being fetched. It takes over what has been fetched. NULL: no memory. */
static struct archive_files *new_work(struct node_stage *stage, void (*run)(struct file_work *work))
{
    struct archive_files *files = archive_files_new(stage->dir, stage->hash, stage);

    if (files == NULL)
        return NULL;
    files->work.run = run;
    files->fd = stage->fd;
    files->digest = stage->digest;
    files->have = stage->have;
    stage->fd = -1;
    stage->digest = NULL;
    return files;
}

/* Ends the fetch, and removes the part that has been fetched: it may have filled the disk. After the last byte
 * there is none. */
static void fetch_end(struct node_stage *stage)
{
    struct archive_files *files;

    if (!uv_is_closing((uv_handle_t *)&stage->timer))
        uv_timer_stop(&stage->timer);
    if (!stage->is_fetching)
        return;
    if (stage->work != NULL)
        file_work_forget(stage->work);
    stage->work = NULL;
    stage->is_fetching = false;
    files = new_work(stage, archive_files_abandon);
    if (files == NULL)
        return; /* the next fetch of this archive begins with the same file */
    files->work.limit_ms = 0;
    (void)file_work_start(stage->host->files, &files->work);
}

void node_stage_close(struct node_stage *stage)
{
    fetch_end(stage);
    uv_close((uv_handle_t *)&stage->timer, NULL);
    while (stage->first != NULL) {
        struct stage_order *order = stage->first;
        stage->first = order->next;
        order_free(order);
    }
}

static void fail_order(struct node_stage *stage, const struct stage_order *order, const char *text)
{
    const struct node_host *host = stage->host;
    char reason[REASON_BYTES_MAX];
    (void)snprintf(reason, sizeof reason, "node %.60s cannot get the staged directory: %.140s",
                   host->core->options.name, text);
    host->post(host->owner, (struct launcher_event){.type = LAUNCHER_EVENT_SHIM_FAILED,
                                                    .job_id = order->job_id,
                                                    .generation = order->generation,
                                                    .text = reason});
}

static void spawn_held(struct node_stage *stage, const struct stage_order *order)
{
    struct arena arena = {0};
    struct msg start;
    struct err err;
    const size_t head = sizeof(uint32_t); /* the frame's length */
    if (msg_decode(order->frame.bytes + head, order->frame.byte_count - head, &arena, &start,
                   &err) == STATUS_OK)
        node_start_shim(stage->shims, &start);
    else
        fail_order(stage, order, err.text);
    arena_reset(&arena);
}

static void unlink_order(struct node_stage *stage, struct stage_order *order)
{
    struct stage_order **at = &stage->first;

    while (*at != order)
        at = &(*at)->next;
    *at = order->next;
}

/* The archive is there, or `problem` says why not: the order continues or fails. */
static void settle_order(struct node_stage *stage, struct stage_order *order, const char *problem)
{
    unlink_order(stage, order);
    if (problem == NULL)
        spawn_held(stage, order);
    else
        fail_order(stage, order, problem);
    order_free(order);
}

/* Every order that waits for the fetch of this archive. */
static void settle(struct node_stage *stage, const char *hash, const char *problem)
{
    for (struct stage_order *order = stage->first, *next; order != NULL; order = next) {
        next = order->next;
        if (order->check == NULL && strcmp(order->hash, hash) == 0)
            settle_order(stage, order, problem);
    }
}

static void fetch_next(struct node_stage *stage);

static void give_up(struct node_stage *stage, const char *problem)
{
    char hash[STAGE_HASH_CHARS + 1];

    assert(stage->is_fetching);
    memcpy(hash, stage->hash, sizeof hash);
    fetch_end(stage);
    settle(stage, hash, problem);
    fetch_next(stage);
}

/* Runs a step now: events that were posted outside of a step wait for the next one. */
static void wake(const struct node_stage *stage)
{
    stage->host->step(stage->host->owner, (struct launcher_event){.type = LAUNCHER_EVENT_TICK});
}

static void on_timer(uv_timer_t *timer)
{
    struct node_stage *stage = timer->data;
    if (!stage->is_fetching || stage->host->ending)
        return;
    give_up(stage, "the server sent nothing for 60 s");
    wake(stage);
}

static void ask(const struct node_stage *stage)
{
    struct msg msg = {.type = MSG_TYPE_STAGE_GET};
    msg.stage_get.hash = stage->hash;
    msg.stage_get.offset = stage->have;
    stage->host->send_server(stage->host->owner, &msg);
}

static void post_held(const struct node_stage *stage, const struct stage_order *order)
{
    const struct node_host *host = stage->host;

    host->post(host->owner, (struct launcher_event){.type = LAUNCHER_EVENT_SHIM_HELD,
                                                    .job_id = order->job_id,
                                                    .generation = order->generation});
}

/* The fetch has begun, or has come further: a connection that was lost, and a question that is asked again, do not
 * count. All orders wait for it, one after the other. */
static void goes_on(struct node_stage *stage)
{
    uv_timer_start(&stage->timer, on_timer, ANSWER_MS, 0);
    for (const struct stage_order *order = stage->first; order != NULL; order = order->next)
        post_held(stage, order);
}

/* Takes back what was fetched. False: nobody waits for it any more. */
static bool take_work(struct archive_files *files)
{
    struct node_stage *stage = files->owner;

    if (stage->work != &files->work || stage->host->closed)
        return false;
    stage->work = NULL;
    return true;
}

static void take_fetched(struct node_stage *stage, struct archive_files *files)
{
    stage->fd = files->fd;
    stage->digest = files->digest;
    stage->have = files->have;
    files->fd = -1;
    files->digest = NULL;
}

static void on_begun(struct file_work *work, const char *late)
{
    struct archive_files *files = (struct archive_files *)work;
    struct node_stage *stage = files->owner;

    if (!take_work(files))
        return;
    if (late == NULL && files->status == STATUS_OK) {
        take_fetched(stage, files);
        ask(stage);
        goes_on(stage);
    } else {
        give_up(stage, late != NULL ? late : files->err.text);
    }
    wake(stage);
}

static bool begin_fetch(struct node_stage *stage)
{
    struct archive_files *files = new_work(stage, archive_files_begin);

    if (files == NULL)
        return false;
    files->work.done = on_begun;
    stage->work = &files->work;
    if (file_work_start(stage->host->files, &files->work))
        return true;
    stage->work = NULL;
    return false;
}

/* Starts to fetch the archive of the first order that needs one, unless a fetch is in progress. */
static void fetch_next(struct node_stage *stage)
{
    struct stage_order *order;

    while (!stage->is_fetching) {
        for (order = stage->first; order != NULL && order->check != NULL;)
            order = order->next;
        if (order == NULL)
            return;
        stage->is_fetching = true;
        stage->have = 0;
        memcpy(stage->hash, order->hash, sizeof stage->hash);
        if (begin_fetch(stage))
            return;
        stage->is_fetching = false;
        settle(stage, stage->hash, TOO_MUCH);
    }
}

static void trim(struct node_stage *stage)
{
    struct archive_files *files = archive_files_new(stage->dir, "", stage);

    if (files == NULL)
        return;
    files->work.limit_ms = 0;
    files->work.run = archive_files_trim;
    files->bytes_max = CACHE_BYTES_MAX;
    (void)file_work_start(stage->host->files, &files->work);
}

static void on_written(struct file_work *work, const char *late)
{
    struct archive_files *files = (struct archive_files *)work;
    struct node_stage *stage = files->owner;
    char hash[STAGE_HASH_CHARS + 1];

    if (!take_work(files))
        return;
    if (late != NULL || files->status != STATUS_OK) {
        give_up(stage, late != NULL ? late : files->err.text);
    } else if (files->is_last) {
        memcpy(hash, stage->hash, sizeof hash);
        stage->is_fetching = false;
        uv_timer_stop(&stage->timer);
        settle(stage, hash, NULL); /* each shim makes its own link */
        trim(stage);
        fetch_next(stage);
    } else {
        take_fetched(stage, files);
        ask(stage);
        goes_on(stage);
    }
    wake(stage);
}

/* False: no memory. */
static bool write_bytes(struct node_stage *stage, const struct msg_stage_data *data)
{
    struct archive_files *files;
    uint8_t *bytes = malloc(data->bytes.count);

    if (bytes == NULL)
        return false;
    memcpy(bytes, data->bytes.items, data->bytes.count);
    files = new_work(stage, archive_files_write);
    if (files == NULL) {
        free(bytes);
        return false;
    }
    files->bytes = bytes;
    files->byte_count = data->bytes.count;
    files->is_last = files->have + data->bytes.count == data->total;
    files->work.done = on_written;
    stage->work = &files->work;
    uv_timer_stop(&stage->timer); /* the work has a deadline of its own */
    if (file_work_start(stage->host->files, &files->work))
        return true;
    stage->work = NULL;
    return false;
}

static void take(struct node_stage *stage, const struct msg_stage_data *data)
{
    if (data->problem[0] != '\0')
        give_up(stage, data->problem);
    else if (data->bytes.count == 0 || data->total > STAGE_BYTES_MAX ||
             data->bytes.count > data->total - stage->have)
        give_up(stage, "the server sent bytes that do not belong to it");
    else if (!write_bytes(stage, data))
        give_up(stage, "no memory for its bytes");
}

void node_stage_data(struct node_stage *stage, const struct msg_stage_data *data)
{
    if (stage->fd < 0 || strcmp(data->hash, stage->hash) != 0 || data->offset != stage->have)
        return; /* the answer to a request from before the connection was lost */
    take(stage, data);
    wake(stage);
}

void node_stage_connected(struct node_stage *stage)
{
    if (stage->fd >= 0)
        ask(stage);
}

/* -- orders --------------------------------------------------------------------------------------- */

static void on_checked(struct file_work *work, const char *late)
{
    const struct archive_files *files = (struct archive_files *)work;
    struct node_stage *stage = files->owner;
    struct stage_order *order = stage->first;

    while (order != NULL && order->check != work)
        order = order->next;
    if (order == NULL || stage->host->closed)
        return;
    order->check = NULL;
    if (late != NULL || files->is_there)
        settle_order(stage, order, late);
    fetch_next(stage);
    wake(stage);
}

/* NULL, or why not. */
static const char *check(struct node_stage *stage, struct stage_order *order)
{
    struct archive_files *files = archive_files_new(stage->dir, order->hash, stage);

    if (files == NULL)
        return "no memory";
    files->work.run = archive_files_check;
    files->work.done = on_checked;
    order->check = &files->work;
    return file_work_start(stage->host->files, &files->work) ? NULL : TOO_MUCH;
}

void node_stage_spawn(struct node_stage *stage, const struct msg *start)
{
    struct stage_order *order, **at = &stage->first;
    char hash[STAGE_HASH_CHARS + 1];
    struct msg copy = *start;
    const char *why;
    struct err err;

    if (!stage_of_cwd(start->start.cwd, hash)) {
        node_start_shim(stage->shims, start);
        return;
    }
    order = calloc(1, sizeof *order);
    if (order == NULL || msg_encode(&copy, &order->frame, &err) != STATUS_OK) {
        struct stage_order none = {.job_id = start->start.job_id,
                                   .generation = start->start.generation};
        fail_order(stage, &none, "no memory");
        free(order);
        return;
    }
    order->job_id = start->start.job_id;
    order->generation = start->start.generation;
    memcpy(order->hash, hash, sizeof order->hash);
    while (*at != NULL)
        at = &(*at)->next;
    *at = order;
    post_held(stage, order);
    why = check(stage, order);
    if (why != NULL)
        settle_order(stage, order, why);
}

static struct stage_order *find(struct node_stage *stage, uint64_t job_id, uint32_t generation)
{
    struct stage_order *order = stage->first;

    while (order != NULL && (order->job_id != job_id || order->generation != generation))
        order = order->next;
    return order;
}

/* Whether an order waits for the archive that is being fetched. */
static bool is_wanted(const struct node_stage *stage)
{
    for (const struct stage_order *order = stage->first; order != NULL; order = order->next)
        if (order->check == NULL && strcmp(order->hash, stage->hash) == 0)
            return true;
    return false;
}

void node_stage_cancel(struct node_stage *stage, uint64_t job_id, uint32_t generation)
{
    struct stage_order *order = find(stage, job_id, generation);

    if (order == NULL)
        return;
    unlink_order(stage, order);
    order_free(order);
    if (stage->is_fetching && !is_wanted(stage))
        fetch_end(stage);
    fetch_next(stage);
}

void node_stage_kill(struct node_stage *stage, uint64_t job_id, uint32_t generation,
                     const char *why)
{
    struct stage_order *order = find(stage, job_id, generation);

    if (order == NULL)
        return;
    fail_order(stage, order, why);
    node_stage_cancel(stage, job_id, generation);
}
