#include "launcherd/node/node_warm_job.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/frame.h"
#include "common/io/write_all.h"
#include "launcherd/process/rundir.h"
#include "launcherd/shim/shim_io.h"
#include "launcherd/shim/warm_main.h"

struct log_about node_warm_about(const struct node_warm_job *job)
{
    struct log_about about = node_about(job->warm->host);

    about.job_id = job->order.warm.job_id;
    return about;
}

void node_warm_dir(const struct node_warm_job *job, char out[PATH_MAX])
{
    rundir_warm_path(out, job->warm->host->state_dir, job->order.warm.cluster,
                     job->order.warm.job_id);
}

struct warm_files *node_warm_files(const struct node_warm_job *job, enum file_lane lane)
{
    struct warm_files *files;
    char dir[PATH_MAX];

    node_warm_dir(job, dir);
    files = warm_files_new(dir);
    if (files == NULL)
        return NULL;
    files->work.lane = lane;
    files->warm = job->warm;
    return files;
}

bool node_warm_take_order(struct node_warm_job *job, const struct msg_warm *order)
{
    const struct msg msg = {.type = MSG_TYPE_WARM, .warm = *order};
    struct buf frame = {0};
    struct err err = {.text = ""};
    const char *payload;
    size_t payload_bytes;
    int fd = memfd_create("warm", MFD_CLOEXEC);
    bool done =
        fd >= 0 && msg_encode(&msg, &frame, &err) == STATUS_OK &&
        frame_next(frame.bytes, frame.byte_count, FRAME_LARGE_BYTES_MAX, &payload, &payload_bytes,
                   &err) == STATUS_OK &&
        msg_decode_stored(payload, payload_bytes, &job->arena, &job->order, &err) == STATUS_OK &&
        write_all(fd, frame.bytes, frame.byte_count) && lseek(fd, 0, SEEK_SET) == 0;

    buf_free(&frame);
    job->stdin_fd = done ? fd : -1;
    if (!done && fd >= 0)
        (void)close(fd);
    return done;
}

static void on_link(uv_poll_t *poll, int status, int events)
{
    struct node_warm_job *job = poll->data;
    char byte;

    (void)status;
    (void)events;
    if (recv(job->link, &byte, 1, MSG_DONTWAIT) != 1 || byte != WARM_IS_READY) {
        (void)uv_poll_stop(poll); /* its process ends, and is reaped */
        return;
    }
    if (job->state != WARM_STARTING)
        return;
    job->state = WARM_READY;
    log_line(LOG_INFO, node_warm_about(job), "process %d is warm", (int)job->pid);
}

/* False: no memory. */
static bool add_process(struct node_warm_job *job, struct warm_files *files)
{
    const struct node_host *host = job->warm->host;
    const char *words[SHIM_ARG_COUNT] = {NULL};
    char gpus[DEVICES_TEXT_BYTES];

    job->child = node_child_new(host->children);
    if (job->child == NULL)
        return false;
    devices_format(host->devices, host->core->options.gpus, gpus);
    words[SHIM_ARG_RUN_DIR] = files->dir;
    words[SHIM_ARG_CGROUPS] = host->cgroups;
    words[SHIM_ARG_LOG_DIR] = files->log_dir;
    words[SHIM_ARG_NODE_NAME] = host->core->options.name;
    words[SHIM_ARG_NODE_ADDRESS] = host->core->options.address;
    words[SHIM_ARG_GPUS] = gpus;
    words[SHIM_ARG_ALLOW_ROOT] = host->allow_root ? "1" : "0";
    child_order_new(&files->order, job->child, WARM_ARGUMENT);
    for (uint32_t i = 0; i < SHIM_ARG_COUNT; i++)
        child_order_add(&files->order, words[i] != NULL ? words[i] : "");
    files->stdin_fd = job->stdin_fd;
    job->stdin_fd = -1;
    return true;
}

bool node_warm_stop_start(struct node_warm_job *job)
{
    struct node_children *children = job->warm->host->children;

    job->making = NULL; /* its `done` finds out */
    if (job->child != NULL && !node_child_cancel(children, job->child))
        return false;
    node_child_drop(children, &job->child);
    return true;
}

static void fail(struct node_warm_job *job, const char *why)
{
    (void)node_warm_stop_start(job);
    job->state = WARM_FAILED;
    log_line(LOG_WARNING, node_warm_about(job), "nothing is kept warm for it: %s", why);
}

/* False: its connection cannot be watched, so it ends. */
static bool watch(struct node_warm_job *job, struct warm_files *files)
{
    if (uv_poll_init(job->warm->host->loop, &job->poll, files->link_fd) != 0)
        return false;
    job->link = files->link_fd;
    files->link_fd = -1;
    job->poll_open = true;
    job->poll.data = job;
    (void)uv_poll_start(&job->poll, UV_READABLE | UV_DISCONNECT, on_link);
    return true;
}

/* The folders and the log are there, and the process has been started. It may have ended since. */
static void on_made(struct file_work *work, const char *late)
{
    struct warm_files *files = (struct warm_files *)work;
    struct node_warm_job *job = files->warm->first;
    char text[160];

    while (job != NULL && job->making != work)
        job = job->next;
    if (job == NULL || files->warm->host->closed)
        return;
    job->making = NULL;
    if (late != NULL) {
        fail(job, node_child_explain(job->child, late, text, sizeof text));
    } else if (files->status != STATUS_OK) {
        fail(job, files->err.text);
    } else if (job->child->has_ended || !watch(job, files)) {
        job->state = WARM_FAILED;
        log_line(LOG_WARNING, node_warm_about(job),
                 "nothing is kept warm for it: its process has ended, or cannot be watched, "
                 "see " WARM_LOG " beside its logs");
        (void)node_child_cancel(job->warm->host->children, job->child);
        node_warm_check_children(job->warm);
    } else {
        job->pid = node_child_pid(job->child);
        node_child_drop(job->warm->host->children, &job->child);
    }
}

/* NULL, or why not. */
static const char *make(struct node_warm_job *job)
{
    const struct node_host *host = job->warm->host;
    struct warm_files *files;

    /* Memory that they use before they enter the job's cgroup would not count against its limit. */
    if (host->job_memory_bytes > 0)
        return "--job-memory counts from a start";
    files = node_warm_files(job, FILE_LANE_START);
    if (files == NULL)
        return "no memory";
    files->work.limit_ms = FILE_WORK_LATE_MS;
    files->work.run = warm_files_make;
    files->work.done = on_made;
    files->log_mode = geteuid() == 0 ? 0711 : 0700;
    node_log_dir(host, files->log_dir, job->order.warm.cluster, job->order.warm.job_id,
                 job->order.warm.submitted_ms);
    rundir_join(files->log, files->log_dir, WARM_LOG);
    if (!add_process(job, files)) {
        files->work.drop(&files->work);
        return "no memory";
    }
    job->making = &files->work;
    if (file_work_start(host->files, &files->work))
        return NULL;
    return "too much waits for the disks already";
}

void node_warm_start(struct node_warm_job *job)
{
    const char *why = make(job);

    if (why != NULL)
        fail(job, why);
}
