#include "worker/backend/cuda/exec/plan_progress.h"

#include <stdio.h>
#include <unistd.h>

#include "common/io/mono.h"
#include "common/log.h"

enum { FIRST_US = 500000, TERMINAL_US = 100000, LOG_US = 3000000 };

static void describe(enum plan_phase phase, uint32_t done, uint32_t total,
                     char text[PLAN_PROGRESS_BYTES])
{
    switch (phase) {
    case PLAN_WAITING:
        (void)snprintf(text, PLAN_PROGRESS_BYTES,
                       "plans: waiting for another process that makes them, %u s", done);
        return;
    case PLAN_BUILDING:
        (void)snprintf(text, PLAN_PROGRESS_BYTES, "plans: %u of %u", done, total);
        return;
    case PLAN_TIMING:
        (void)snprintf(text, PLAN_PROGRESS_BYTES, "plans: %u of %u timed", done, total);
        return;
    }
}

bool plan_progress_line(struct plan_progress *progress, enum plan_phase phase, uint32_t done,
                        uint32_t total, uint64_t now_us, bool is_terminal,
                        char text[PLAN_PROGRESS_BYTES])
{
    const uint64_t pause_us = is_terminal ? TERMINAL_US : LOG_US;
    const bool is_last = done == total && phase != PLAN_WAITING;

    text[0] = '\0';
    if (progress->begun_us == 0)
        progress->begun_us = now_us;
    if (is_last)
        return is_terminal && progress->shown_us != 0;
    if (now_us - progress->begun_us < (is_terminal ? FIRST_US : LOG_US) ||
        (progress->shown_us != 0 && now_us - progress->shown_us < pause_us))
        return false;
    progress->shown_us = now_us;
    describe(phase, done, total, text);
    return true;
}

void plan_progress_show(struct plan_progress *progress, enum plan_phase phase, uint32_t done,
                        uint32_t total)
{
    const bool is_terminal = isatty(STDERR_FILENO) == 1;
    char text[PLAN_PROGRESS_BYTES];

    if (!plan_progress_line(progress, phase, done, total, mono_us(), is_terminal, text))
        return;
    if (!is_terminal)
        log_line(LOG_INFO, LOG_ABOUT_NONE, "%s", text);
    else
        (void)fprintf(stderr, "\r\033[K%s", text);
}
