#include "tests/lib/disk_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct disk_name *find_name(struct disk_name *names, const char *path)
{
    for (uint32_t i = 0; i < DISK_NAMES_MAX; i++)
        if (strcmp(names[i].path, path) == 0)
            return &names[i];
    return NULL;
}

static void apply_change(struct disk_name *names, const struct disk_name_change *change)
{
    struct disk_name *name = change->gone[0] != '\0' ? find_name(names, change->gone) : NULL;

    if (name != NULL)
        name->path[0] = '\0';
    if (change->made.path[0] == '\0')
        return;
    name = find_name(names, change->made.path);
    if (name == NULL)
        name = find_name(names, "");
    if (name == NULL)
        abort();
    *name = change->made;
}

void disk_names_store(struct disk_names *names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        apply_change(names->stored, &names->changes[i]);
    names->change_count -= count;
    memmove(names->changes, names->changes + count, names->change_count * sizeof names->changes[0]);
}

void disk_names_change(struct disk_names *names, const char *gone, const char *made, int file)
{
    struct disk_name_change *change;

    if (names->change_count == DISK_CHANGES_MAX)
        disk_names_store(names, 1);
    change = &names->changes[names->change_count++];
    memset(change, 0, sizeof *change);
    (void)snprintf(change->gone, sizeof change->gone, "%s", gone);
    (void)snprintf(change->made.path, sizeof change->made.path, "%s", made);
    change->made.file = file;
    apply_change(names->now, change);
}

int disk_names_find(struct disk_names *names, const char *path)
{
    const struct disk_name *name = find_name(names->now, path);

    return name != NULL ? name->file : -1;
}

static bool is_named(const struct disk_name *names, int file)
{
    for (uint32_t i = 0; i < DISK_NAMES_MAX; i++)
        if (names[i].path[0] != '\0' && names[i].file == file)
            return true;
    return false;
}

bool disk_names_have(const struct disk_names *names, int file)
{
    return is_named(names->now, file);
}

bool disk_names_may_have(const struct disk_names *names, int file)
{
    for (uint32_t i = 0; i < names->change_count; i++)
        if (names->changes[i].made.path[0] != '\0' && names->changes[i].made.file == file)
            return true;
    return is_named(names->now, file) || is_named(names->stored, file);
}

void disk_names_lose(struct disk_names *names)
{
    names->change_count = 0;
    memcpy(names->now, names->stored, sizeof names->now);
}
