#include "launcherd/shim/shim_prepare.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "common/io/address.h"
#include "common/io/own_path.h"
#include "common/stage.h"
#include "launcherd/process/rundir.h"
#include "launcherd/shim/rank_files.h"
#include "launcherd/shim/worker_spawn.h"

/* The first reason is kept. */
static void fail(struct shim_prepare *prepare, int32_t code, const char *text)
{
    if (prepare->code != 0)
        return;
    prepare->code = code;
    (void)snprintf(prepare->text, sizeof prepare->text, "%s", text);
}

/* About the node. */
static void fail_node(struct shim_prepare *prepare, const char *why)
{
    char text[256];

    (void)snprintf(text, sizeof text, "node %.64s: %.180s", prepare->workers->options.node_name,
                   why);
    fail(prepare, 125, text);
}

static void end(struct shim_prepare *prepare)
{
    if (prepare->is_over)
        return;
    shim_prepare_close(prepare);
    prepare->on_done(prepare->owner, prepare->code, prepare->text);
}

/* -- the files --------------------------------------------------------------------------------------- */

static void on_made(struct file_work *work, const char *late)
{
    struct rank_files *files = (struct rank_files *)work;
    struct shim_prepare *prepare = files->prepare;

    if (prepare == NULL)
        return;
    files->prepare = NULL;
    prepare->files = NULL;
    if (late == NULL && files->status == STATUS_OK) {
        shim_workers_take_logs(prepare->workers, files->logs);
        files->open_count = 0;
        prepare->workers->store.status_fd = files->store_fd;
        files->store_fd = -1;
        if (prepare->is_checked)
            end(prepare);
        return;
    }
    fail_node(prepare, late != NULL ? late : files->err.text);
    end(prepare);
}

static void make_files(struct shim_prepare *prepare)
{
    const struct shim_workers_options *options = &prepare->workers->options;
    struct rank_files *files = rank_files_new(options->start->local_count);
    struct err err;

    if (files == NULL || shim_workers_open_writer(prepare->workers, &err) != STATUS_OK) {
        fail_node(prepare, files == NULL ? "no memory for the logs" : err.text);
        if (files != NULL)
            files->work.drop(&files->work);
        end(prepare);
        return;
    }
    files->work.lane = FILE_LANE_RANKS;
    files->work.limit_ms = FILE_WORK_LATE_MS;
    files->work.done = on_made;
    files->prepare = prepare;
    (void)snprintf(files->log_dir, sizeof files->log_dir, "%s", options->log_dir);
    if (prepare->workers->has_store)
        (void)snprintf(files->store_address, sizeof files->store_address,
                       ADDRESS_UNIX_PREFIX "%s/store.sock", options->run_dir);
    files->generation = options->start->generation;
    files->rank_base = options->start->rank_base;
    files->log_max = options->log_max;
    prepare->files = files;
    if (!file_work_start(options->files, &files->work)) {
        prepare->files = NULL;
        fail_node(prepare, "the shim ends already");
        end(prepare);
    }
}

/* -- the check -------------------------------------------------------------------------------------- */

static void on_checked(void *owner, struct preflight_result *result)
{
    struct shim_prepare *prepare = owner;
    struct err err;

    prepare->is_checked = true;
    if (result->code != 0)
        fail(prepare, result->code, result->text);
    else if (shim_workers_prepare(prepare->workers, &result->account, result->as_self,
                                  &prepare->limits, &err) != STATUS_OK)
        fail(prepare, 125, err.text);
    if (prepare->files == NULL && prepare->has_begun)
        end(prepare);
}

void shim_prepare_place(struct shim_prepare *prepare, struct msg_start *start, const char *log_dir)
{
    char hash[STAGE_HASH_CHARS + 1];

    if (!stage_of_cwd(start->cwd, hash))
        return;
    rundir_join(prepare->stage_dir, log_dir, "stage");
    rundir_join(prepare->stage_files, prepare->stage_dir, "files");
    start->cwd = prepare->stage_files;
}

static void begin_check(struct shim_prepare *prepare, const struct account_policy *policy)
{
    struct shim_workers *workers = prepare->workers;
    struct stage_source stage = {.tar_fd = -1, .dir = prepare->stage_dir};
    const bool is_staged = prepare->stage_dir[0] != '\0';
    const struct preflight_more more = {.stage = is_staged ? &stage : NULL,
                                        .error_dir = workers->error_dir};
    struct worker_env_facts env;
    char tar[PATH_MAX];
    struct err err;

    rundir_join(tar, workers->options.run_dir, "stage.tar");
    if (is_staged && own_file_open(tar, 2, O_RDONLY, 0, &stage.tar_fd, &err) != STATUS_OK) {
        static struct preflight_result result = {.code = 125};

        (void)snprintf(result.text, sizeof result.text,
                       "node %s: the staged directory cannot be read: %.160s", policy->node,
                       err.text);
        on_checked(prepare, &result);
        return;
    }
    worker_facts(workers, &env);
    prepare->preflight.owner = prepare;
    prepare->preflight.on_done = on_checked;
    preflight_begin(&prepare->preflight, workers->options.loop, policy, &env, &more);
    if (stage.tar_fd >= 0)
        close(stage.tar_fd);
}

void shim_prepare_begin(struct shim_prepare *prepare, const struct account_policy *policy)
{
    begin_check(prepare, policy);
    prepare->has_begun = true;
    make_files(prepare);
}

void shim_prepare_close(struct shim_prepare *prepare)
{
    prepare->is_over = true;
    preflight_close(&prepare->preflight);
    if (prepare->files != NULL)
        prepare->files->prepare = NULL;
    prepare->files = NULL;
}
