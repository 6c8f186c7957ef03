#include "ddpctl/units.h"

#include <assert.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "common/options.h"

void duration_text(uint64_t duration_us, char text[TEXT_BYTES])
{
    unsigned long long s = duration_us / 1000000u, m = s / 60, h = m / 60, d = h / 24;

    if (d > 0)
        (void)snprintf(text, TEXT_BYTES, "%llud%02lluh", d, h % 24);
    else if (h > 0)
        (void)snprintf(text, TEXT_BYTES, "%lluh%02llum", h, m % 60);
    else if (m >= 10 || (m > 0 && s % 60 == 0))
        (void)snprintf(text, TEXT_BYTES, "%llum", m);
    else if (m > 0)
        (void)snprintf(text, TEXT_BYTES, "%llum%02llus", m, s % 60);
    else
        (void)snprintf(text, TEXT_BYTES, "%llus", s);
}

void count_text(double value, char text[TEXT_BYTES])
{
    static const char suffixes[] = " kMGTPE";
    size_t thousands = 0;

    if (!isfinite(value) || value < 0) {
        (void)snprintf(text, TEXT_BYTES, "-");
        return;
    }
    if (value < 999.5) {
        (void)snprintf(text, TEXT_BYTES, value < 9.95 && value != floor(value) ? "%.1f" : "%.0f",
                       value);
        return;
    }
    while (value >= 999.5 && thousands < sizeof suffixes - 2) {
        value /= 1000;
        thousands++;
    }
    (void)snprintf(text, TEXT_BYTES, "%.1f", value);
    if (value >= 99.95 || strstr(text, ".0"))
        (void)snprintf(text, TEXT_BYTES, "%.0f", value);
    (void)snprintf(text + strlen(text), TEXT_BYTES - strlen(text), "%c", suffixes[thousands]);
}

void time_text(int64_t wall_ms, char text[TEXT_BYTES])
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;
    size_t used;

    assert(wall_ms >= 0); /* times in messages are never negative */
    if (!gmtime_r(&seconds, &tm) || tm.tm_year > 9999 - 1900) {
        (void)snprintf(text, TEXT_BYTES, "9999-12-31T23:59:59.999Z");
        return;
    }
    used = strftime(text, TEXT_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(text + used, TEXT_BYTES - used, ".%03uZ", (unsigned)(wall_ms % 1000));
}

void signal_text(uint32_t signal, char text[TEXT_BYTES])
{
    const char *name = sigabbrev_np((int)signal);

    if (name)
        (void)snprintf(text, TEXT_BYTES, "SIG%s", name);
    else
        (void)snprintf(text, TEXT_BYTES, "signal %u", signal);
}

enum status signal_parse(const char *text, uint32_t *signal, struct err *err)
{
    const char *name = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;
    uint64_t number = 0;

    if (options_parse_number("signal", text, 1, 64, &number, NULL) == STATUS_OK) {
        *signal = (uint32_t)number;
        return STATUS_OK;
    }
    for (int i = 1; i < NSIG; i++) {
        const char *known = sigabbrev_np(i);

        if (known && strcasecmp(known, name) == 0) {
            *signal = (uint32_t)i;
            return STATUS_OK;
        }
    }
    return err_set(err, STATUS_BAD_INPUT, 0, "'%.40s' is no signal; examples: TERM, USR1, 9", text);
}
