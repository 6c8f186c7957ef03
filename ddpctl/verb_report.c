/* ddpctl report: the page of a job (report_page.h). Reads the job with its ranks, its events, and the
 * metrics of all generations; then writes the file, whole or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/io/conn.h"
#include "common/io/disk_child.h"
#include "ddpctl/attach.h"
#include "ddpctl/job_lines.h"
#include "ddpctl/job_pages.h"
#include "ddpctl/json_parts.h"
#include "ddpctl/report_events.h"
#include "ddpctl/request.h"
#include "ddpctl/verbs.h"

#define PATIENCE_US 5000000u
#define WRITE_MS 30000u /* a disk that takes nothing for so long does not answer */

struct report_run {
    struct ctl *ctl;
    struct job_pages job;
    struct report_data data;
    struct metric_lines lines;
    struct report_events events;
    bool more_events; /* there are more after the last answer */
};

static int on_events(struct ctl *ctl, const struct msg *msg, void *context)
{
    struct report_run *run = context;

    (void)ctl;
    run->more_events = report_events_take(&run->events, &msg->events);
    return CTL_OK;
}

static int read_job(struct report_run *run)
{
    struct msg msg = {.type = MSG_TYPE_JOB_GET, .job_get = {.job = run->ctl->words[0]}};
    struct request request = {.msg = &msg, .patience_us = PATIENCE_US, .answer = MSG_TYPE_JOB_INFO};
    int rc = job_pages_read(run->ctl, &request, &run->job);

    if (rc == CTL_OK)
        report_events_init(&run->events, &run->job.job);
    return rc;
}

static int read_events(struct report_run *run)
{
    int rc = CTL_OK;

    do {
        struct msg msg = {.type = MSG_TYPE_EVENT_LIST,
                          .event_list = {.job_id = run->job.job.job_id,
                                         .after_id = run->events.last_id,
                                         .limit = REPORT_EVENTS_PAGE}};
        struct request request = {.msg = &msg,
                                  .patience_us = PATIENCE_US,
                                  .answer = MSG_TYPE_EVENTS,
                                  .on_answer = on_events,
                                  .context = run};

        rc = request_run(run->ctl, &request);
    } while (rc == CTL_OK && run->more_events);
    return rc;
}

static void on_line(void *owner, const struct metric_line *line)
{
    struct report_run *run = owner;

    report_data_take(&run->data, line);
}

static bool on_log(struct attach *attach, const struct attach_piece *piece)
{
    struct report_run *run = attach->options.owner;
    struct report_data *data = &run->data;

    metric_lines_take(&run->lines, piece->generation, piece->rank, piece->bytes, piece->byte_count,
                      piece->is_final);
    if (piece->problem[0] != '\0')
        screen_message(&run->ctl->screen, "-- generation %u: %s --", piece->generation,
                       piece->problem);
    if (piece->problem[0] != '\0' && data->problem_count < REPORT_PROBLEMS_MAX)
        (void)snprintf(data->problems[data->problem_count++], sizeof data->problems[0],
                       "Generation %u: %s", piece->generation, piece->problem);
    return true;
}

static void on_done(struct attach *attach)
{
    (void)attach;
}

static int read_metrics(struct report_run *run)
{
    static const uint8_t mask[RANKS_PER_JOB_MAX / 8] = {1};
    char job[24];
    const struct attach_options options = {
        .job = job,
        .follow = {.what = LOG_METRICS,
                   .to_current = true,
                   .from_generation = 1,
                   .rank_mask = mask},
        .show_logs = true,
        .can_detach = true,
        .patience_us = PATIENCE_US,
        .on_log = on_log,
        .on_done = on_done,
        .owner = run,
    };

    (void)snprintf(job, sizeof job, "%llu", (unsigned long long)run->job.job.job_id);
    run->lines = (struct metric_lines){.take = on_line, .owner = run};
    return attach_run(run->ctl, &options);
}

/* The mode of a file that the shell would make. */
static mode_t usual_mode(void)
{
    const mode_t mask = umask(0);

    (void)umask(mask);
    return 0666 & ~mask;
}

/* Writes a new file beside `path` and renames it, so that nobody sees half a page. A pipe or a
 * device is refused, because the rename would replace it. */
static enum status write_file(const char *path, const struct buf *page, struct err *err)
{
    char beside[PATH_MAX];
    struct stat now;
    size_t done = 0;
    bool is_written;
    int fd, code;

    if (stat(path, &now) == 0 && !S_ISREG(now.st_mode) && !S_ISDIR(now.st_mode))
        return err_set(err, STATUS_BAD_INPUT, 0, "%.200s is no ordinary file", path);
    if (snprintf(beside, sizeof beside, "%s.XXXXXX", path) >= (int)sizeof beside)
        return err_set(err, STATUS_TOO_BIG, 0, "the path %.100s... is too long", path);
    fd = mkostemp(beside, O_CLOEXEC);
    if (fd < 0)
        return err_set(err, STATUS_IO, errno, "cannot write beside %.200s: %s", path,
                       strerror(errno));
    while (done < page->byte_count) {
        ssize_t written = write(fd, page->bytes + done, page->byte_count - done);

        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            break;
        done += (size_t)written;
    }
    is_written = done == page->byte_count && fchmod(fd, usual_mode()) == 0;
    code = errno;
    if (close(fd) != 0 && is_written) {
        is_written = false;
        code = errno;
    }
    if (is_written && rename(beside, path) == 0)
        return STATUS_OK;
    if (is_written)
        code = errno;
    (void)unlink(beside);
    return err_set(err, STATUS_IO, code, "cannot write %.200s: %s", path, strerror(code));
}

struct page_file {
    const char *path;
    const struct buf *page;
};

static enum status write_in_child(void *context, struct err *err)
{
    const struct page_file *file = context;

    return write_file(file->path, file->page, err);
}

/* Also ends when the disk does not answer. */
static enum status keep_file(const char *path, const struct buf *page, struct err *err)
{
    struct page_file file = {.path = path, .page = page};
    struct err why = {0};
    const enum status status = disk_child_run(write_in_child, &file, WRITE_MS, &why);

    if (status == STATUS_TIMEOUT)
        return err_set(err, status, 0, "cannot write %.150s: its disk does not answer: %s", path,
                       why.text);
    if (status != STATUS_OK)
        *err = why;
    return status;
}

/* Reports as JSON which file was written. */
static int say_file(struct screen *screen, const char *path)
{
    cJSON *object = cJSON_CreateObject();
    struct buf out = {0};
    char *text;
    int code;

    (void)cJSON_AddStringToObject(object, "schema", "ddp.v1");
    (void)cJSON_AddStringToObject(object, "type", "report");
    output_add_valid(object, "file", path, strlen(path));
    text = cJSON_PrintUnformatted(object);
    buf_printf(&out, "%s\n", text != NULL ? text : "{}");
    code = screen_out(screen, &out) == STATUS_OK ? CTL_OK : CTL_FAILED;
    cJSON_free(text);
    cJSON_Delete(object);
    buf_free(&out);
    return code;
}

static int write_page(struct report_run *run, struct buf *out)
{
    const char *path = run->ctl->options.output;
    struct screen *screen = &run->ctl->screen;
    char made[JOB_NAME_BYTES_MAX + JOB_LINE_ID_BYTES + 16], id[JOB_LINE_ID_BYTES];
    struct err err = {0};

    if (path != NULL && strcmp(path, "-") == 0)
        return screen_out(screen, out) == STATUS_OK ? CTL_OK : CTL_FAILED;
    if (path == NULL) {
        job_line_id(&run->job.job, id);
        (void)snprintf(made, sizeof made, "report-%s-%s.html", run->job.job.name, id);
        path = made;
    }
    if (keep_file(path, out, &err) != STATUS_OK)
        return ctl_fail_err(run->ctl, CTL_FAILED, &err,
                            "name another file with -o, or - for stdout");
    if (screen->json)
        return say_file(screen, path);
    screen_message(screen, "%s: open it in a browser; it needs no network", path);
    return CTL_OK;
}

static int make_page(struct report_run *run)
{
    struct part_event ordered[REPORT_EVENTS_MAX];
    struct report_page page = {.info = &run->job.info,
                               .data = &run->data,
                               .lines = run->lines.good,
                               .bad_lines = run->lines.bad,
                               .now_ms = clock_wall_ms()};
    struct buf out = {0};
    int rc;

    report_events_show(&run->events, ordered, &page);
    report_page_write(&page, &out);
    rc = out.failed || run->data.failed ? ctl_fail(run->ctl, CTL_FAILED, "out of memory", "")
                                        : write_page(run, &out);
    buf_free(&out);
    return rc;
}

int verb_report(struct ctl *ctl)
{
    struct report_run *run;
    int rc = verb_need_one_job(ctl);

    if (rc != CTL_OK)
        return rc;
    run = calloc(1, sizeof *run);
    if (run == NULL)
        return ctl_fail(ctl, CTL_FAILED, "out of memory", "");
    run->ctl = ctl;
    rc = read_job(run);
    if (rc == CTL_OK)
        rc = read_events(run);
    if (rc == CTL_OK && run->job.job.generation > 0)
        rc = read_metrics(run);
    if (rc == CTL_OK)
        rc = make_page(run);
    metric_lines_close(&run->lines);
    report_data_free(&run->data);
    job_pages_free(&run->job);
    free(run);
    return rc;
}
