#include "worker/metrics/line.h"

#include <math.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

static const char *const kinds[] = {
    [LINE_STEP] = "step",     [LINE_VALIDATION] = "validation",
    [LINE_EPOCH] = "epoch",   [LINE_CHECKPOINT] = "checkpoint",
    [LINE_RESUME] = "resume", [LINE_RESTART] = "restart",
};

static void put_number(struct buf *buf, const char *name, double value, int digits)
{
    if (isfinite(value))
        buf_printf(buf, ",\"%s\":%.*g", name, digits, value);
    else
        buf_printf(buf, ",\"%s\":null", name);
}

/* RFC 3339, UTC, milliseconds. */
static void put_time(struct buf *buf, uint64_t time_us)
{
    const time_t seconds = (time_t)(time_us / 1000000);
    char text[sizeof "2026-01-31T23:59:59"];
    struct tm parts;

    if (gmtime_r(&seconds, &parts) == NULL ||
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts) == 0)
        buf_add_text(buf, "\"time\":null");
    else
        buf_printf(buf, "\"time\":\"%s.%03uZ\"", text, (unsigned)(time_us / 1000 % 1000));
}

static void put_step(struct buf *buf, const struct metrics_line *line)
{
    put_number(buf, "lr", line->lr, 7); /* it is made of a float */
    put_number(buf, "images_per_s", line->images_per_s, 7);
    put_number(buf, "step_ms", line->step_ms, 7);
    put_number(buf, "data_ms", line->data_ms, 7);
    put_number(buf, "comm_ms", line->comm_ms, 7);
    put_number(buf, "exposed_ms", line->exposed_ms, 7);
    put_number(buf, "loss_scale", line->loss_scale, 9);
    buf_printf(buf, ",\"skipped\":%u", line->skipped);
}

/* A loss has all digits of a double, as in --loss-log. */
static void put_result(struct buf *buf, const struct metrics_line *line)
{
    put_number(buf, "loss", line->loss, 17);
    put_number(buf, "acc1", line->acc1, 9);
    put_number(buf, "acc5", line->acc5, 9);
}

void metrics_line_put(struct buf *buf, const struct metrics_line *line)
{
    buf_printf(buf, "{\"kind\":\"%s\",", kinds[line->kind]);
    put_time(buf, line->time_us);
    buf_printf(buf, ",\"epoch\":%u,\"step\":%u", line->epoch, line->step);
    switch (line->kind) {
    case LINE_STEP:
        put_result(buf, line);
        put_step(buf, line);
        break;
    case LINE_VALIDATION:
        put_result(buf, line);
        buf_printf(buf, ",\"images\":%u", line->images);
        put_number(buf, "seconds", line->seconds, 7);
        break;
    case LINE_EPOCH:
        put_result(buf, line);
        put_number(buf, "images_per_s", line->images_per_s, 7);
        put_number(buf, "seconds", line->seconds, 7);
        buf_printf(buf, ",\"unreadable\":%zu", line->unreadable);
        break;
    case LINE_RESUME:
    case LINE_RESTART:
        buf_printf(buf, ",\"generation\":%u,\"world\":%u", line->generation, line->world);
        break;
    case LINE_CHECKPOINT:
        break;
    }
    buf_add_text(buf, "}\n");
}

/* Whether the file ends inside a line: its writer was killed, or the disk was full. */
static bool ends_with_line(const char *path, off_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    char last = '\n';

    if (fd < 0)
        return true;
    if (pread(fd, &last, 1, size - 1) != 1)
        last = '\n';
    (void)close(fd);
    return last == '\n';
}

enum status line_file_open(struct line_file *file, const char *path, bool *has_lines,
                           struct err *err)
{
    const enum status status = append_open(&file->file, path, APPEND_KEEP, err);
    struct stat now;

    file->begins_line = true;
    *has_lines = false;
    if (status != STATUS_OK || fstat(file->file.fd, &now) < 0 || !S_ISREG(now.st_mode) ||
        now.st_size == 0)
        return status;
    *has_lines = true;
    file->begins_line = ends_with_line(path, now.st_size);
    return STATUS_OK;
}

enum status line_file_write(struct line_file *file, const struct metrics_line *line,
                            struct err *err)
{
    struct buf buf = {0};
    enum status status;

    if (!file->begins_line)
        buf_add_text(&buf, "\n");
    metrics_line_put(&buf, line);
    status = buf.failed ? err_set(err, STATUS_MEMORY, 0, "no memory for a line")
                        : append_write(&file->file, buf.bytes, buf.byte_count, err);
    file->begins_line = status == STATUS_OK || (file->begins_line && !file->file.is_torn);
    buf_free(&buf);
    return status;
}
