#include "launcherd/process/devices.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status refuse(const char *text, struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "'%.60s' should be all, none, or numbers of GPUs from 0 to %u, each once, like "
                   "0,2-3",
                   text, SLOTS_PER_NODE_MAX - 1);
}

/* Parses a number below SLOTS_PER_NODE_MAX. NULL: there is none at `at`. */
static const char *take_number(const char *at, uint32_t *number)
{
    char *end;

    if (!isdigit((unsigned char)*at))
        return NULL;
    unsigned long value = strtoul(at, &end, 10);
    *number = value < SLOTS_PER_NODE_MAX ? (uint32_t)value : 0;
    return value < SLOTS_PER_NODE_MAX ? end : NULL;
}

static bool add(struct devices *devices, uint32_t number)
{
    for (uint32_t i = 0; i < devices->count; i++)
        if (devices->items[i] == number)
            return false;
    devices->items[devices->count++] = number; /* none twice, so there is room */
    return true;
}

enum status devices_parse(struct devices *devices, const char *text, struct err *err)
{
    const char *at = text;
    uint32_t first = 0, last;

    *devices = (struct devices){.all = strcmp(text, "all") == 0};
    if (devices->all || strcmp(text, "none") == 0)
        return STATUS_OK;
    do {
        at = take_number(at, &first);
        last = first;
        if (at != NULL && *at == '-')
            at = take_number(at + 1, &last);
        if (at == NULL || (*at != ',' && *at != '\0') || last < first)
            return refuse(text, err);
        for (uint32_t i = first; i <= last; i++)
            if (!add(devices, i))
                return refuse(text, err);
    } while (*at++ == ',');
    return STATUS_OK;
}

void devices_format(const struct devices *devices, uint32_t gpus, char text[DEVICES_TEXT_BYTES])
{
    uint32_t count = devices->all ? gpus : devices->count;
    size_t used = 0;

    (void)snprintf(text, DEVICES_TEXT_BYTES, "%s", devices->all ? "all" : "none");
    for (uint32_t i = 0; i < count && i < SLOTS_PER_NODE_MAX; i++)
        used += (size_t)snprintf(text + used, DEVICES_TEXT_BYTES - used, "%s%u", i > 0 ? "," : "",
                                 devices->all ? i : devices->items[i]);
}
