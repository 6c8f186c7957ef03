#include "launcherd/inspect/summary.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/utf8.h"

#define FRAMES_SHOWN 12u

static const char *text_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    return cJSON_IsString(item) ? item->valuestring : "";
}

/* Adds a line only if it fits completely. */
__attribute__((format(printf, 2, 3))) static void add_line(struct summary *out, const char *format,
                                                           ...)
{
    char text[512], line[512];
    const size_t used = strlen(out->stack);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    utf8_printable(text, strlen(text), line, sizeof line);
    if (used + strlen(line) + 2 < sizeof out->stack)
        (void)snprintf(out->stack + used, sizeof out->stack - used, "%s\n", line);
}

static void set_where(struct summary *out, const char *text, size_t length)
{
    while (length > 0 && *text == ' ') {
        text++;
        length--;
    }
    utf8_printable(text, length, out->where, sizeof out->where);
}

/* -- the kernel -------------------------------------------------------------------------------- */

static void add_kernel(const cJSON *root, struct summary *out)
{
    const cJSON *frames = cJSON_GetObjectItemCaseSensitive(root, "kernel_stack"), *frame;
    const char *wchan = text_of(root, "wchan");
    char text[400] = "";
    size_t used = 0;

    add_line(out, "state %s%s%s", text_of(root, "state"), wchan[0] != '\0' ? ", in " : "", wchan);
    if (wchan[0] != '\0')
        set_where(out, wchan, strlen(wchan));
    cJSON_ArrayForEach(frame, frames)
    {
        if (!cJSON_IsString(frame) || used >= sizeof text)
            continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used > 0 ? " < " : "",
                                 frame->valuestring);
    }
    if (used > 0)
        add_line(out, "kernel: %s", text);
}

/* -- Python ------------------------------------------------------------------------------------ */

static bool has(const char *line, size_t length, const char *part)
{
    return memmem(line, length, part, strlen(part)) != NULL;
}

/* Whether the frame is one in which a healthy rank waits for other ranks. */
static bool waits_for_others(const char *line, size_t length)
{
    return has(line, length, "torch/distributed/") || has(line, length, "_engine_run_backward") ||
           has(line, length, "synchronize (torch/cuda");
}

static bool is_frame(const char *line, size_t length)
{
    return length > 4 && strncmp(line, "    ", 4) == 0;
}

/* Frames of the main thread: "Thread 21490 (idle): "MainThread"", then the innermost first. */
static void add_python(const char *text, struct summary *out)
{
    bool in_main = false;
    uint32_t frames = 0;

    while (*text != '\0') {
        const size_t length = strcspn(text, "\n");

        if (strncmp(text, "Thread ", 7) == 0)
            in_main = has(text, length, "\"MainThread\"");
        if (in_main && is_frame(text, length)) {
            const bool waits = waits_for_others(text, length);

            if (frames == 0 || (waits && out->place != LOOK_COLLECTIVE))
                set_where(out, text, length);
            if (frames == 0)
                out->place = LOOK_ELSEWHERE;
            if (waits)
                out->place = LOOK_COLLECTIVE;
            if (frames++ < FRAMES_SHOWN)
                add_line(out, "  %.*s", (int)(length < 400 ? length - 4 : 396), text + 4);
        }
        text += length + (text[length] == '\n');
    }
}

void summary_of_problem(const char *problem, struct summary *out)
{
    *out = (struct summary){.place = LOOK_UNKNOWN};
    add_line(out, "%s", problem);
}

void summary_make(const char *json, size_t byte_count, struct summary *out)
{
    cJSON *root = cJSON_ParseWithLength(json, byte_count);
    const char *problem, *state;

    if (!cJSON_IsObject(root)) {
        summary_of_problem("its stack is not readable", out);
        cJSON_Delete(root);
        return;
    }
    *out = (struct summary){.place = LOOK_UNKNOWN};
    state = text_of(root, "state");
    problem = text_of(root, "python_problem");
    if (state[0] > ' ' && state[0] < 0x7f)
        out->state[0] = state[0];
    add_kernel(root, out);
    add_python(text_of(root, "python"), out);
    if (problem[0] != '\0' && strncmp(problem, "neither", 7) != 0)
        add_line(out, "no Python frames: %s", problem);
    cJSON_Delete(root);
}
