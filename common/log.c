#include "common/log.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/utf8.h"

#define LINE_BYTES_MAX 4096u
#define TEXT_BYTES_MAX 2048u

static struct {
    const char *module;
    enum log_level level;
    bool as_json;
    bool never_waits;
    uint64_t dropped; /* lines dropped since the last one that was written */
    void (*write)(const char *bytes, size_t byte_count);
} settings = {.module = "-", .level = LOG_INFO};

/* Threads write lines, too. Held from the look for room to the write, so that none of them takes the
 * room of another. Recursive, as a line about lost lines comes within another. */
static pthread_mutex_t writing = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static const char *const level_names[] = {
    [LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARNING] = "warning", [LOG_ERROR] = "error"};

/* A line under construction; what does not fit is cut. */
struct line {
    char bytes[LINE_BYTES_MAX];
    size_t count;
    bool is_full; /* something did not fit: nothing more is added */
};

static void put(struct line *line, const char *bytes, size_t byte_count)
{
    size_t room = sizeof line->bytes - 8 - line->count; /* 8: the end of a line always fits */

    if (line->is_full || byte_count > room) { /* an escape is added as a whole or not at all */
        line->is_full = true;
        return;
    }
    memcpy(line->bytes + line->count, bytes, byte_count);
    line->count += byte_count;
}

__attribute__((format(printf, 2, 3))) static void putf(struct line *line, const char *format, ...)
{
    char text[128];
    va_list args;
    int count;

    va_start(args, format);
    count = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (count > 0)
        put(line, text, (size_t)count < sizeof text ? (size_t)count : sizeof text - 1);
}

/* Escapes one character, or one invalid byte. Text: \n, \x1b. JSON: \n, \u001b. */
static void put_escaped(struct line *line, const char *text, size_t byte_count, bool as_json)
{
    unsigned byte = (unsigned char)text[0];

    if (utf8_next(text, byte_count) == 0)
        as_json ? put(line, "\\ufffd", 6) : putf(line, "\\x%02x", byte);
    else if (byte == '\n')
        put(line, "\\n", 2);
    else if (byte == '\t')
        put(line, "\\t", 2);
    else if (byte == '\r')
        put(line, "\\r", 2);
    else if (byte == 0xc2) /* C1 */
        putf(line, "\\u%04x", (unsigned)(unsigned char)text[1]);
    else
        as_json ? putf(line, "\\u%04x", byte) : putf(line, "\\x%02x", byte);
}

static void put_text(struct line *line, const char *text, bool as_json)
{
    size_t byte_count = strlen(text);

    for (size_t i = 0; i < byte_count;) {
        size_t left = byte_count - i, count = utf8_next(text + i, left);

        if (count == 0 || utf8_is_control(text + i, left)) {
            put_escaped(line, text + i, left, as_json);
        } else {
            if (as_json && (text[i] == '"' || text[i] == '\\'))
                putf(line, "\\%c", text[i]);
            else
                put(line, text + i, count);
        }
        i += count > 0 ? count : 1;
    }
}

static void put_time(struct line *line)
{
    struct timespec now = {0};
    struct tm utc = {0};

    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    putf(line, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", utc.tm_year + 1900, utc.tm_mon + 1,
         utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_nsec / 1000000);
}

static void format_text(struct line *line, enum log_level level, const struct log_about *about,
                        const char *text)
{
    put_time(line);
    putf(line, " %s %s", level_names[level], settings.module);
    if (about->node != NULL) {
        put(line, " ", 1);
        put_text(line, about->node, false);
    }
    if (about->job_id != 0)
        putf(line, " job %" PRIu64, about->job_id);
    if (about->generation != 0)
        putf(line, " g%" PRIu32, about->generation);
    if (about->rank >= 0)
        putf(line, " rank %" PRId32, about->rank);
    put(line, ": ", 2);
    put_text(line, text, false);
}

static void format_json(struct line *line, enum log_level level, const struct log_about *about,
                        const char *text)
{
    put(line, "{\"time\":\"", 9);
    put_time(line);
    putf(line, "\",\"level\":\"%s\",\"module\":\"%s\"", level_names[level], settings.module);
    if (about->node != NULL) {
        put(line, ",\"node\":\"", 9);
        put_text(line, about->node, true);
        put(line, "\"", 1);
    }
    if (about->job_id != 0)
        putf(line, ",\"job\":%" PRIu64, about->job_id);
    if (about->generation != 0)
        putf(line, ",\"generation\":%" PRIu32, about->generation);
    if (about->rank >= 0)
        putf(line, ",\"rank\":%" PRId32, about->rank);
    put(line, ",\"text\":\"", 9);
    put_text(line, text, true);
    memcpy(line->bytes + line->count, "\"}", 2); /* put keeps room for this */
    line->count += 2;
}

/* Whether a write would not block. A pipe that polls writable takes PIPE_BUF bytes, pipe(7), and no
 * line is longer. */
static bool has_room(void)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};

    static_assert(LINE_BYTES_MAX <= PIPE_BUF, "or a line could wait in the middle");
    return poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0;
}

static void write_out(const struct line *line)
{
    size_t done = 0;

    if (settings.write != NULL) {
        settings.write(line->bytes, line->count);
        return;
    }

    while (done < line->count) {
        ssize_t count = write(STDERR_FILENO, line->bytes + done, line->count - done);

        if (count > 0)
            done += (size_t)count;
        else if (count == 0 || errno != EINTR)
            return; /* there is no other place to report it */
    }
}

/* Whether to drop the line. The first line after some that were dropped reports their number. */
static bool is_dropped(void)
{
    uint64_t count = settings.dropped;

    if (!settings.never_waits || settings.write != NULL)
        return false;
    if (!has_room()) {
        settings.dropped++;
        return true;
    }
    settings.dropped = 0;
    if (count > 0)
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "%" PRIu64 " lines were lost before this one: nobody read them", count);
    return count > 0 && !has_room() && ++settings.dropped > 0;
}

void log_use(void (*write)(const char *bytes, size_t byte_count))
{
    settings.write = write;
}

void log_never_wait(void)
{
    settings.never_waits = true;
}

void log_line(enum log_level level, struct log_about about, const char *format, ...)
{
    struct line line;
    char text[TEXT_BYTES_MAX];
    int saved_errno = errno;
    va_list args;

    if (level < settings.level)
        return;
    (void)pthread_mutex_lock(&writing);
    if (is_dropped()) {
        (void)pthread_mutex_unlock(&writing);
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    line.count = 0;
    line.is_full = false;
    if (settings.as_json)
        format_json(&line, level, &about, text);
    else
        format_text(&line, level, &about, text);
    line.bytes[line.count++] = '\n';
    write_out(&line);
    (void)pthread_mutex_unlock(&writing);
    errno = saved_errno;
}

static void read_level(const char *word)
{
    for (size_t i = 0; i < sizeof level_names / sizeof level_names[0]; i++)
        if (strcmp(word, level_names[i]) == 0) {
            settings.level = (enum log_level)i;
            return;
        }
    log_line(LOG_WARNING, LOG_ABOUT_NONE,
             "DDP_LOG_LEVEL is \"%s\", expected debug, info, warning or error; using %s", word,
             level_names[settings.level]);
}

static void read_form(const char *word)
{
    if (strcmp(word, "json") == 0)
        settings.as_json = true;
    else if (strcmp(word, "text") == 0)
        settings.as_json = false;
    else
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "DDP_LOG_FORMAT is \"%s\", expected text or json; using %s", word,
                 settings.as_json ? "json" : "text");
}

void log_open(const char *module, enum log_level level, bool as_json)
{
    const char *level_name = getenv("DDP_LOG_LEVEL"), *form_name = getenv("DDP_LOG_FORMAT");

    assert(module != NULL);
    settings.module = module;
    settings.level = level;
    settings.as_json = as_json;
    if (form_name != NULL && form_name[0] != '\0')
        read_form(form_name);
    if (level_name != NULL && level_name[0] != '\0')
        read_level(level_name);
}
