#include "ddpctl/screen.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/io/conn.h"

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value && *value;
}

static bool is_on(const char *name)
{
    const char *value = getenv(name);

    return value && *value && strcmp(value, "0") != 0;
}

static bool is_dumb(void)
{
    const char *terminal = getenv("TERM");

    return terminal != NULL && strcmp(terminal, "dumb") == 0;
}

/* As no-color.org, bixense.com/clicolors and force-color.org have it; the first one that is set wins. */
static void choose_color(struct screen *screen)
{
    const bool is_off = is_set("NO_COLOR");
    const bool is_forced = !is_off && (is_on("FORCE_COLOR") || is_on("CLICOLOR_FORCE"));
    const bool may_be = !is_off && !is_dumb() && (!is_set("FORCE_COLOR") || is_on("FORCE_COLOR")) &&
                        (!is_set("CLICOLOR") || is_on("CLICOLOR"));

    screen->color = is_forced || (may_be && screen->out_is_tty);
    screen->err_color = is_forced || (may_be && screen->err_is_tty);
}

enum status screen_open(struct screen *screen, bool json, bool quiet, const char *color,
                        struct err *err)
{
    *screen = (struct screen){.json = json, .quiet = quiet};
    screen->out_is_tty = isatty(STDOUT_FILENO) == 1;
    screen->err_is_tty = isatty(STDERR_FILENO) == 1;
    if (!color || strcmp(color, "auto") == 0) {
        choose_color(screen);
    } else if (strcmp(color, "always") == 0) {
        screen->color = screen->err_color = true;
    } else if (strcmp(color, "never") != 0) {
        return err_set(err, STATUS_BAD_INPUT, 0, "--color: '%.40s' should be auto, always or never",
                       color);
    }
    return STATUS_OK;
}

void screen_close(struct screen *screen)
{
    screen_line(screen, NULL);
    buf_free(&screen->line);
}

struct output_style screen_style(const struct screen *screen)
{
    return (struct output_style){.color = screen->color, .now_ms = clock_wall_ms()};
}

/* Blocks until everything is written: a slow reader of stdout slows down the reading from the
 * server, and nothing is dropped. */
static bool write_all(int fd, const char *bytes, size_t byte_count)
{
    while (byte_count > 0) {
        ssize_t written = write(fd, bytes, byte_count);
        struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};

        if (written >= 0) {
            bytes += written;
            byte_count -= (size_t)written;
        } else if (errno == EAGAIN) {
            (void)poll(&poll_fd, 1, -1);
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

static void wipe_line(struct screen *screen)
{
    if (screen->line_shown)
        (void)write_all(STDERR_FILENO, "\r\x1b[K", 4);
    screen->line_shown = false;
}

uint32_t screen_columns(void)
{
    struct winsize size = {0};

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

static void draw_line(struct screen *screen)
{
    size_t byte_count = screen->line.byte_count;
    uint32_t columns;

    if (byte_count == 0 || screen->line_shown || screen->is_mid_line)
        return;
    columns = screen_columns();
    if (byte_count > columns - 1) /* the line is ASCII, so bytes are columns */
        byte_count = columns - 1;
    (void)write_all(STDERR_FILENO, screen->line.bytes, byte_count);
    screen->line_shown = true;
}

/* Writes our own lines to stderr; in raw mode with carriage returns. */
static void write_lines(const struct screen *screen, const char *text, size_t byte_count)
{
    while (screen->is_raw && byte_count > 0) {
        const char *feed = memchr(text, '\n', byte_count);
        size_t length = feed != NULL ? (size_t)(feed - text) : byte_count;

        (void)write_all(STDERR_FILENO, text, length);
        if (feed != NULL)
            (void)write_all(STDERR_FILENO, "\r\n", 2);
        text += length + (feed != NULL);
        byte_count -= length + (feed != NULL);
    }
    (void)write_all(STDERR_FILENO, text, byte_count);
}

/* Ends a line that a job has begun, so that our text starts on a new line. */
static void end_line(struct screen *screen)
{
    if (screen->err_is_mid_line ||
        (screen->is_mid_line && screen->out_is_tty && screen->err_is_tty))
        write_lines(screen, "\n", 1);
    screen->is_mid_line = screen->err_is_mid_line = false;
}

/* A reader that has closed its pipe, or a terminal that is gone, wants no more. */
static bool is_reader_gone(const struct screen *screen, int fd, int code)
{
    return code == EPIPE || code == ECONNRESET ||
           (code == EIO && (fd == STDERR_FILENO ? screen->err_is_tty : screen->out_is_tty));
}

/* Any other failure loses what was asked for. */
static void tell_lost(struct screen *screen, int fd, int code)
{
    char message[160];

    if (is_reader_gone(screen, fd, code))
        return;
    screen->is_lost = true;
    (void)snprintf(message, sizeof message, "cannot write to standard %s: %s",
                   fd == STDERR_FILENO ? "error" : "output", strerror(code));
    screen_error(screen, "failed", message, "");
}

static enum status show_out(struct screen *screen, int fd, bool *has_failed, struct buf *out)
{
    if (out->byte_count > 0 && !*has_failed) {
        wipe_line(screen);
        if (out->failed)
            errno = ENOMEM;
        *has_failed = out->failed || !write_all(fd, out->bytes, out->byte_count);
        if (*has_failed)
            tell_lost(screen, fd, errno);
        screen->is_mid_line = out->bytes[out->byte_count - 1] != '\n';
        screen->err_is_mid_line =
            fd == STDERR_FILENO ? screen->is_mid_line : screen->err_is_mid_line;
        draw_line(screen);
    }
    buf_free(out);
    *out = (struct buf){0};
    return *has_failed ? STATUS_IO : STATUS_OK;
}

enum status screen_out(struct screen *screen, struct buf *out)
{
    return show_out(screen, STDOUT_FILENO, &screen->out_failed, out);
}

enum status screen_err_out(struct screen *screen, struct buf *out)
{
    return show_out(screen, STDERR_FILENO, &screen->err_failed, out);
}

void screen_message(struct screen *screen, const char *format, ...)
{
    char text[4096];
    va_list args;
    int length;

    if (screen->quiet || screen->json)
        return;
    va_start(args, format);
    length = vsnprintf(text, sizeof text - 1, format, args);
    va_end(args);
    if (length >= (int)sizeof text - 1)
        length = (int)sizeof text - 2;
    if (length == 0 || text[length - 1] != '\n')
        text[length++] = '\n';
    wipe_line(screen);
    end_line(screen);
    write_lines(screen, text, (size_t)length);
    draw_line(screen);
}

void screen_error(struct screen *screen, const char *code, const char *message, const char *hint)
{
    struct buf out = {0};

    assert(code != NULL && message != NULL && hint != NULL);
    if (screen->json) {
        output_error_json(code, message, hint, &out);
    } else {
        buf_printf(&out, "ddpctl: %s\n", message);
        if (hint[0])
            buf_printf(&out, "  %s\n", hint);
    }
    wipe_line(screen);
    end_line(screen);
    if (!out.failed)
        write_lines(screen, out.bytes, out.byte_count);
    draw_line(screen);
    buf_free(&out);
}

bool screen_has_line(const struct screen *screen)
{
    return screen->out_is_tty && screen->err_is_tty && !screen->quiet && !screen->json &&
           !is_dumb();
}

void screen_line(struct screen *screen, const char *text)
{
    if (!screen_has_line(screen))
        return;
    if (text && screen->line_shown && strlen(text) == screen->line.byte_count &&
        memcmp(text, screen->line.bytes, screen->line.byte_count) == 0)
        return;
    wipe_line(screen);
    buf_drop(&screen->line, screen->line.byte_count);
    if (text) {
        buf_add_text(&screen->line, text);
        draw_line(screen);
    }
}
