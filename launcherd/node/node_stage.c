#include "launcherd/node/node_stage.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/frame.h"
#include "common/io/own_path.h"
#include "common/log.h"
#include "common/stage.h"
#include "launcherd/process/rundir.h"
#include "launcherd/process/stage_files.h"

#define ANSWER_MS 60000u                /* the start fails after this long without a piece */
#define CACHE_BYTES_MAX (1024ull << 20) /* of archives that are kept for later jobs */

/* A start order that waits for its archive. */
struct stage_order {
    struct stage_order *next;
    uint64_t job_id;
    uint32_t generation;
    char hash[STAGE_HASH_CHARS + 1];
    struct buf frame; /* the order as a frame: it borrows from nothing */
};

static void archive_path(const struct node_stage *stage, const char *hash, const char *suffix,
                         char path[PATH_MAX])
{
    (void)snprintf(path, PATH_MAX, "%.4000s/%s%s", stage->dir, hash, suffix);
}

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

/* Ends the fetch for the first order, and removes the part that has been fetched: it may have filled
 * the disk. After complete() there is none. */
static void fetch_end(struct node_stage *stage)
{
    char part[PATH_MAX];
    struct err none;

    if (stage->fd >= 0) {
        archive_path(stage, stage->first->hash, ".part", part);
        (void)own_file_remove(part, 1, &none);
        close(stage->fd);
    }
    stage->fd = -1;
    stage->have = 0;
    stage_digest_free(&stage->digest);
    if (!uv_is_closing((uv_handle_t *)&stage->timer))
        uv_timer_stop(&stage->timer);
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
        node_shim_spawn(stage->shims, &start);
    else
        fail_order(stage, order, err.text);
    arena_reset(&arena);
}

/* The archive is complete, or `problem` says why not: every order for it continues or fails. */
static void settle(struct node_stage *stage, const char *hash, const char *problem)
{
    struct stage_order **at = &stage->first;
    while (*at != NULL) {
        struct stage_order *order = *at;
        if (strcmp(order->hash, hash) != 0) {
            at = &order->next;
            continue;
        }
        *at = order->next;
        if (problem == NULL)
            spawn_held(stage, order);
        else
            fail_order(stage, order, problem);
        order_free(order);
    }
}

static void fetch_next(struct node_stage *stage);

static void give_up(struct node_stage *stage, const char *problem)
{
    char hash[STAGE_HASH_CHARS + 1];
    assert(stage->first != NULL);
    memcpy(hash, stage->first->hash, sizeof hash);
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
    if (stage->first == NULL || stage->host->ending)
        return;
    give_up(stage, "the server sent nothing for 60 s");
    wake(stage);
}

static void ask(const struct node_stage *stage)
{
    struct msg msg = {.type = MSG_TYPE_STAGE_GET};
    msg.stage_get.hash = stage->first->hash;
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

/* Starts to fetch the archive of the first order, unless a fetch is in progress. */
static void fetch_next(struct node_stage *stage)
{
    char path[PATH_MAX], hash[STAGE_HASH_CHARS + 1];
    struct err err;
    while (stage->first != NULL && stage->fd < 0) {
        memcpy(hash, stage->first->hash, sizeof hash); /* settle() frees the order */
        archive_path(stage, hash, ".part", path);
        enum status status = rundir_make(stage->dir, 0700, &err);
        if (status == STATUS_OK)
            status = stage_digest_new(&stage->digest, &err);
        if (status == STATUS_OK)
            status = own_file_make(path, 1, 0600, &stage->fd, &err);
        if (status == STATUS_OK) {
            ask(stage);
            goes_on(stage);
            return;
        }
        fetch_end(stage);
        settle(stage, hash, err.text);
    }
}

/* Whether the complete archive is here. This counts as a use. */
static bool has_archive(const struct node_stage *stage, const char *wanted)
{
    char path[PATH_MAX], hash[STAGE_HASH_CHARS + 1] = "";
    uint64_t byte_count;
    struct err err;
    archive_path(stage, wanted, ".tar", path);
    int fd;
    if (own_file_open(path, 1, O_RDONLY, 0, &fd, &err) != STATUS_OK)
        return false;
    bool is_whole = stage_digest_file(fd, hash, &byte_count, &err) == STATUS_OK &&
                    strcmp(hash, wanted) == 0 && futimens(fd, NULL) == 0;
    close(fd);
    return is_whole;
}

void node_stage_spawn(struct node_stage *stage, const struct msg *start)
{
    struct stage_order *order, **at = &stage->first;
    char hash[STAGE_HASH_CHARS + 1];
    struct msg copy = *start;
    struct err err;

    if (!stage_of_cwd(start->start.cwd, hash) || has_archive(stage, hash)) {
        node_shim_spawn(stage->shims, start);
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
    if (stage->fd < 0)
        fetch_next(stage);
    else
        post_held(stage, order);
}

void node_stage_cancel(struct node_stage *stage, uint64_t job_id, uint32_t generation)
{
    for (struct stage_order **at = &stage->first; *at != NULL; at = &(*at)->next) {
        struct stage_order *order = *at;
        if (order->job_id != job_id || order->generation != generation)
            continue;
        if (order == stage->first)
            fetch_end(stage); /* the next order may want another archive */
        *at = order->next;
        order_free(order);
        fetch_next(stage);
        return;
    }
}

void node_stage_kill(struct node_stage *stage, uint64_t job_id, uint32_t generation,
                     const char *why)
{
    for (const struct stage_order *order = stage->first; order != NULL; order = order->next) {
        if (order->job_id != job_id || order->generation != generation)
            continue;
        fail_order(stage, order, why);
        node_stage_cancel(stage, job_id, generation);
        return;
    }
}

static void complete(struct node_stage *stage)
{
    char part[PATH_MAX], path[PATH_MAX], hash[STAGE_HASH_CHARS + 1];
    struct err err;
    bool is_right;

    stage_digest_end(&stage->digest, hash);
    is_right = strcmp(hash, stage->first->hash) == 0;
    archive_path(stage, stage->first->hash, ".part", part);
    archive_path(stage, stage->first->hash, ".tar", path);
    if (!is_right || own_file_rename(part, path, 1, &err) != STATUS_OK) {
        give_up(stage, is_right ? "it cannot be renamed in the state directory"
                                : "its bytes do not have its hash");
        return;
    }
    memcpy(hash, stage->first->hash, sizeof hash);
    fetch_end(stage);
    settle(stage, hash, NULL); /* each shim has its own link: the cache may drop it */
    stage_files_trim(stage->dir, CACHE_BYTES_MAX);
    fetch_next(stage);
}

static void take(struct node_stage *stage, const struct msg_stage_data *data)
{
    if (data->problem[0] != '\0') {
        give_up(stage, data->problem);
        return;
    }
    if (data->bytes.count == 0 || data->total > STAGE_BYTES_MAX ||
        data->bytes.count > data->total - stage->have) {
        give_up(stage, "the server sent bytes that do not belong to it");
        return;
    }
    if (pwrite(stage->fd, data->bytes.items, data->bytes.count, (off_t)stage->have) !=
        (ssize_t)data->bytes.count) {
        give_up(stage, errno == ENOSPC ? "the disk of the state directory is full"
                                       : "its bytes cannot be written");
        return;
    }
    stage_digest_add(stage->digest, data->bytes.items, data->bytes.count);
    stage->have += data->bytes.count;
    goes_on(stage);
    if (stage->have == data->total)
        complete(stage);
    else
        ask(stage);
}

void node_stage_data(struct node_stage *stage, const struct msg_stage_data *data)
{
    if (stage->first == NULL || stage->fd < 0 || strcmp(data->hash, stage->first->hash) != 0 ||
        data->offset != stage->have)
        return; /* the answer to a request from before the connection was lost */
    take(stage, data);
    wake(stage);
}

void node_stage_connected(struct node_stage *stage)
{
    if (stage->first != NULL && stage->fd >= 0)
        ask(stage);
}
