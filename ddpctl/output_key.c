/* Principals and keys as text; JSON is in output_json.c. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ddpctl/output.h"

void output_time(int64_t wall_ms, char *text, size_t text_bytes)
{
    const time_t seconds = (time_t)(wall_ms / 1000);
    struct tm parts;

    (void)snprintf(text, text_bytes, "-");
    if (wall_ms > 0 && gmtime_r(&seconds, &parts) != NULL)
        (void)strftime(text, text_bytes, "%Y-%m-%d %H:%M UTC", &parts);
}

void output_keys(const struct part_principal *items, uint32_t count, struct buf *out)
{
    char created[32], rotated[32], seen[32];
    int width = (int)strlen("NAME");

    for (uint32_t i = 0; i < count; i++)
        if ((int)strlen(items[i].name) > width)
            width = (int)strlen(items[i].name);
    buf_printf(out, "%-*s  %-5s  %-9s  %4s  %-20s  %-20s  %s\n", width, "NAME", "ROLE", "CONNECTED",
               "KEYS", "CREATED", "ROTATED", "SEEN");
    for (uint32_t i = 0; i < count; i++) {
        const struct part_principal *one = &items[i];

        output_time(one->created_ms, created, sizeof created);
        output_time(one->rotated_ms, rotated, sizeof rotated);
        output_time(one->seen_ms, seen, sizeof seen);
        buf_printf(out, "%-*s  %-5s  %-9s  %4u  %-20s  %-20s  %s\n", width, one->name,
                   role_name(one->role), one->is_connected ? "yes" : "no", one->secrets, created,
                   rotated, seen);
    }
}
