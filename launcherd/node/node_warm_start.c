#include "launcherd/node/node_warm_job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/frame.h"
#include "launcherd/process/rundir.h"
#include "launcherd/process/spawn.h"
#include "launcherd/shim/shim_io.h"
#include "launcherd/shim/warm_main.h"

extern char **environ;

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
        write(fd, frame.bytes, frame.byte_count) == (ssize_t)frame.byte_count &&
        lseek(fd, 0, SEEK_SET) == 0;

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

static enum status spawn(struct node_warm_job *job, const struct warm_files *files, int link_fd,
                         struct err *err)
{
    const struct node_host *host = job->warm->host;
    static char program[] = "launcherd", mode[] = WARM_ARGUMENT, none[] = "";
    char dir[PATH_MAX], log_dir[PATH_MAX], gpus[DEVICES_TEXT_BYTES], cgroups[PATH_MAX];
    char name[NODE_NAME_BYTES_MAX], address[ADDRESS_BYTES_MAX];
    char allow_root[2] = {host->allow_root ? '1' : '0', '\0'};
    char *argv[SHIM_ARG_COUNT + 3] = {program, mode};
    int exit_code;

    for (uint32_t i = 0; i < SHIM_ARG_COUNT; i++)
        argv[2 + i] = none;
    (void)snprintf(dir, sizeof dir, "%s", files->dir);
    (void)snprintf(log_dir, sizeof log_dir, "%s", files->log_dir);
    (void)snprintf(cgroups, sizeof cgroups, "%s", host->cgroups);
    (void)snprintf(name, sizeof name, "%s", host->core->options.name);
    (void)snprintf(address, sizeof address, "%s", host->core->options.address);
    devices_format(host->devices, host->core->options.gpus, gpus);
    argv[2 + SHIM_ARG_RUN_DIR] = dir;
    argv[2 + SHIM_ARG_CGROUPS] = cgroups;
    argv[2 + SHIM_ARG_LOG_DIR] = log_dir;
    argv[2 + SHIM_ARG_NODE_NAME] = name;
    argv[2 + SHIM_ARG_NODE_ADDRESS] = address;
    argv[2 + SHIM_ARG_GPUS] = gpus;
    argv[2 + SHIM_ARG_ALLOW_ROOT] = allow_root;
    const struct spawn_order order = {.path = "/proc/self/exe",
                                      .argv = argv,
                                      .envp = environ,
                                      .stdin_fd = job->stdin_fd,
                                      .stdout_fd = files->log_fd,
                                      .stderr_fd = files->log_fd,
                                      .extra_fd = link_fd};
    return spawn_process(&order, &job->pid, &exit_code, err);
}

static enum status start(struct node_warm_job *job, const struct warm_files *files, struct err *err)
{
    int pair[2];
    enum status status;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return err_set(err, STATUS_SYSTEM, errno, "cannot make a socket pair: %s", strerror(errno));
    status = spawn(job, files, pair[1], err);
    (void)close(pair[1]);
    if (status == STATUS_OK && uv_poll_init(job->warm->host->loop, &job->poll, pair[0]) != 0)
        status = err_set(err, STATUS_SYSTEM, 0, "its connection cannot be watched");
    if (status != STATUS_OK) {
        (void)close(pair[0]);
        return status;
    }
    job->link = pair[0];
    job->poll_open = true;
    job->poll.data = job;
    (void)uv_poll_start(&job->poll, UV_READABLE | UV_DISCONNECT, on_link);
    return STATUS_OK;
}

static void fail(struct node_warm_job *job, const char *why)
{
    job->state = WARM_FAILED;
    log_line(LOG_WARNING, node_warm_about(job), "nothing is kept warm for it: %s", why);
}

/* The folders and the log are there. */
static void on_made(struct file_work *work, const char *late)
{
    const struct warm_files *files = (struct warm_files *)work;
    struct node_warm_job *job = files->warm->first;
    struct err err = files->err;

    while (job != NULL && job->making != work)
        job = job->next;
    if (job == NULL || files->warm->host->closed)
        return;
    job->making = NULL;
    if (late != NULL)
        fail(job, late);
    else if (files->status != STATUS_OK || start(job, files, &err) != STATUS_OK)
        fail(job, err.text);
    (void)close(job->stdin_fd);
    job->stdin_fd = -1;
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
    rundir_log_dir(files->log_dir, host->logs_dir, job->order.warm.cluster, job->order.warm.job_id,
                   job->order.warm.submitted_ms);
    rundir_join(files->log, files->log_dir, WARM_LOG);
    job->making = &files->work;
    if (file_work_start(host->files, &files->work))
        return NULL;
    job->making = NULL;
    return "too much waits for the disks already";
}

void node_warm_start(struct node_warm_job *job)
{
    const char *why = make(job);

    if (why != NULL)
        fail(job, why);
}
