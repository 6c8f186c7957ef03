/* `best.json` and `latest.json`: small files that name a checkpoint of the folder by its step.
 * Beside each is a symbolic link to the weights, best.safetensors and latest.safetensors, for
 * people and scripts. Only the best needs its mark; the newest is found without one. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/log.h"
#include "worker/checkpoint/internal.h"
#include "worker/data/fileio.h"

enum { PATH_BYTES = CHECKPOINT_PATH_BYTES, MARK_BYTES_MAX = 4096 };

static const char schema[] = "ddp.mark.v1", best_name[] = "best", latest_name[] = "latest";

static void mark_path(char path[PATH_BYTES], const char *dir, const char *name, const char *ending)
{
    (void)snprintf(path, PATH_BYTES, "%.*s/%s%s", PATH_BYTES - 64, dir, name, ending);
}

/* -- reading -- */

static bool parse(const cJSON *json, struct checkpoint_best *best)
{
    const cJSON *is_ours = cJSON_GetObjectItemCaseSensitive(json, "schema");
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(json, "step");
    const cJSON *metric = cJSON_GetObjectItemCaseSensitive(json, "metric");
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(json, "value");

    *best = (struct checkpoint_best){.step = 0};
    if (!cJSON_IsString(is_ours) || strcmp(is_ours->valuestring, schema) != 0 ||
        !cJSON_IsNumber(step) || !(step->valuedouble >= 0) ||
        step->valuedouble > CHECKPOINT_STEP_MAX)
        return false;
    best->step = (uint32_t)step->valuedouble;
    if (!cJSON_IsString(metric)) /* latest has none */
        return true;
    (void)snprintf(best->metric, sizeof best->metric, "%s", metric->valuestring);
    best->value = cJSON_IsNumber(value) ? value->valuedouble : NAN;
    return isfinite(best->value);
}

/* `path`: of the mark. Errors: STATUS_NOT_FOUND, STATUS_BAD_INPUT, STATUS_IO. */
static enum status read_mark(const char *path, struct checkpoint_best *best, struct err *err)
{
    char *text;
    uint64_t byte_count;
    cJSON *json;
    bool is_good;
    enum status status = fileio_read_file(path, MARK_BYTES_MAX, &text, &byte_count, err);

    if (status != STATUS_OK)
        return status;
    json = fileio_parse_json(text, byte_count);
    is_good = cJSON_IsObject(json) && parse(json, best);
    cJSON_Delete(json);
    free(text);
    return is_good ? STATUS_OK
                   : err_set(err, STATUS_BAD_INPUT, 0,
                             "%s: torn, or it does not name a checkpoint: remove it", path);
}

enum status checkpoint_best_read(const char *dir, struct checkpoint_best *best, struct err *err)
{
    char path[PATH_BYTES], state_path[PATH_BYTES];
    enum status status;

    mark_path(path, dir, best_name, ".json");
    status = read_mark(path, best, err);
    if (status == STATUS_OK && best->metric[0] == '\0')
        status = err_set(err, STATUS_BAD_INPUT, 0, "%s: it has no metric: remove it", path);
    if (status != STATUS_OK)
        return status;
    checkpoint_state_path(state_path, dir, best->step);
    return access(state_path, F_OK) == 0
               ? STATUS_OK
               : err_set(err, STATUS_NOT_FOUND, 0, "%s: step %u, which it names, is not there",
                         path, best->step);
}

/* "DIR/best.json", or with .safetensors or latest. */
static bool is_mark(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    const char *dot = strchr(name, '.');
    const size_t length = dot != NULL ? (size_t)(dot - name) : 0;

    return dot != NULL && (strcmp(dot, ".json") == 0 || strcmp(dot, ".safetensors") == 0) &&
           ((length == sizeof best_name - 1 && strncmp(name, best_name, length) == 0) ||
            (length == sizeof latest_name - 1 && strncmp(name, latest_name, length) == 0));
}

enum status checkpoint_resolve(char out[PATH_BYTES], const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    char mark[PATH_BYTES], dir[PATH_BYTES];
    struct checkpoint_best named;
    enum status status;

    const size_t length = strlen(path);

    if (length + 64 > PATH_BYTES)
        return err_set(err, STATUS_TOO_BIG, 0, "%.80s...: the path is too long", path);
    memcpy(out, path, length + 1);
    if (!is_mark(path))
        return STATUS_OK;
    (void)snprintf(mark, sizeof mark, "%.*s.json", (int)(dot - path), path);
    (void)snprintf(dir, sizeof dir, "%.*s", slash != NULL ? (int)(slash - path) : 1,
                   slash != NULL ? path : ".");
    status = read_mark(mark, &named, err);
    if (status == STATUS_OK)
        checkpoint_state_path(out, dir[0] != '\0' ? dir : "/", named.step);
    return status;
}

/* -- writing -- */

static char *print(const struct checkpoint_best *best)
{
    cJSON *json = cJSON_CreateObject();
    const bool added =
        cJSON_AddStringToObject(json, "schema", schema) != NULL &&
        cJSON_AddNumberToObject(json, "step", best->step) != NULL &&
        (best->metric[0] == '\0' ||
         (cJSON_AddStringToObject(json, "metric", best->metric) != NULL &&
          cJSON_AddItemToObject(json, "value", checkpoint_exact_number(best->value))));
    char *text = added ? cJSON_Print(json) : NULL;

    cJSON_Delete(json);
    return text;
}

/* The link is a convenience: a file system without links goes without it. */
static void make_link(struct checkpoint_dir *dir, const char *name, uint32_t step)
{
    char path[PATH_BYTES], temp[PATH_BYTES], target[64];
    struct err why;

    mark_path(path, dir->path, name, ".safetensors");
    checkpoint_temp_path(temp, dir, path);
    (void)snprintf(target, sizeof target, "step-%08u.safetensors", step);
    if (checkpoint_make_way_for_temp(dir, temp, &why) != STATUS_OK ||
        checkpoint_make_way(dir, path, &why) != STATUS_OK)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "%s", why.text);
    else if (symlink(target, temp) == 0 && rename(temp, path) != 0)
        checkpoint_remove_ours(temp);
}

static enum status write_best(struct checkpoint_dir *dir, const struct checkpoint_best *best,
                              struct err *err)
{
    char path[PATH_BYTES], temp[PATH_BYTES];
    char *text = print(best);
    enum status status;

    if (text == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the name of a checkpoint");
    mark_path(path, dir->path, best_name, ".json");
    checkpoint_temp_path(temp, dir, path);
    status = checkpoint_make_way_for_temp(dir, temp, err);
    if (status == STATUS_OK)
        status = checkpoint_make_way(dir, path, err);
    if (status == STATUS_OK)
        status = fileio_write_file(temp, text, strlen(text), err);
    if (status == STATUS_OK)
        status = fileio_rename(temp, path, dir->path, err);
    if (status != STATUS_OK)
        checkpoint_remove_ours(temp);
    else
        make_link(dir, best_name, best->step);
    free(text);
    return status;
}

enum status checkpoint_best_mark(struct checkpoint_dir *dir, const struct checkpoint_best *best,
                                 struct err *err)
{
    char state_path[PATH_BYTES];
    enum status status = fence_lock(&dir->fence, err);

    if (status != STATUS_OK)
        return status;
    checkpoint_state_path(state_path, dir->path, best->step);
    status = fence_check(&dir->fence, err);
    if (status == STATUS_OK && access(state_path, F_OK) != 0)
        status = err_set(err, STATUS_NOT_FOUND, 0, "%s has no checkpoint of step %u", dir->path,
                         best->step);
    if (status == STATUS_OK)
        status = write_best(dir, best, err);
    fence_unlock(&dir->fence);
    return status;
}

/* Written without a sync, which would cost more than this mark is worth. */
static bool write_plain(const char *path, const char *text)
{
    bool done;
    int fd;

    if (fileio_create(path, &fd, NULL) != STATUS_OK)
        return false;
    done = fileio_write(fd, text, strlen(text), NULL) == STATUS_OK;
    return close(fd) == 0 && done;
}

void checkpoint_latest_mark(struct checkpoint_dir *dir, int64_t step)
{
    const struct checkpoint_best latest = {.step = step >= 0 ? (uint32_t)step : 0};
    char path[PATH_BYTES];

    mark_path(path, dir->path, latest_name, ".json");
    if (step >= 0) {
        char temp[PATH_BYTES], *text = print(&latest);
        struct err why;

        checkpoint_temp_path(temp, dir, path);
        if (checkpoint_make_way_for_temp(dir, temp, &why) != STATUS_OK ||
            checkpoint_make_way(dir, path, &why) != STATUS_OK)
            log_line(LOG_WARNING, LOG_ABOUT_NONE, "%s", why.text);
        else if (text != NULL && write_plain(temp, text) && rename(temp, path) == 0)
            make_link(dir, latest_name, latest.step);
        else
            checkpoint_remove_ours(temp);
        free(text);
        return;
    }
    checkpoint_remove_ours(path);
    mark_path(path, dir->path, latest_name, ".safetensors");
    checkpoint_remove_ours(path);
}

void checkpoint_best_move(const char *from, const char *to)
{
    static const char *const endings[] = {".json", ".safetensors"};
    char old_path[PATH_BYTES], new_path[PATH_BYTES];

    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        mark_path(old_path, from, best_name, endings[i]);
        mark_path(new_path, to, best_name, endings[i]);
        (void)rename(old_path, new_path);
    }
}
