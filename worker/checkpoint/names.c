/* Names of the files of a folder of checkpoints. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/checkpoint/internal.h"

enum { PATH_BYTES = CHECKPOINT_PATH_BYTES, DIGITS = 8 };

static const char name_prefix[] = "step-";

void checkpoint_file_path(char *out, const char *dir, uint32_t step, const char *ending)
{
    assert(step <= CHECKPOINT_STEP_MAX);
    (void)snprintf(out, PATH_BYTES, "%s/%s%08u%s", dir, name_prefix, step, ending);
}

void checkpoint_state_path(char *out, const char *dir, uint32_t step)
{
    checkpoint_file_path(out, dir, step, ".json");
}

bool checkpoint_parse_name(const char *name, const char *ending, uint32_t *step)
{
    const char *digits = name + strlen(name_prefix);

    if (strncmp(name, name_prefix, strlen(name_prefix)) != 0 ||
        strspn(digits, "0123456789") != DIGITS || strcmp(digits + DIGITS, ending) != 0)
        return false;
    *step = (uint32_t)strtoul(digits, NULL, 10);
    return true;
}

static int newest_first(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x > y ? -1 : x < y;
}

enum status checkpoint_list_steps(const char *path, const char *ending, uint32_t **steps,
                                  size_t *count, struct err *err)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    size_t room = 0;
    uint32_t step;

    *steps = NULL;
    *count = 0;
    if (dir == NULL)
        return err_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, errno,
                       "%s: cannot open the folder: %s", path, strerror(errno));
    while ((entry = readdir(dir)) != NULL) {
        if (!checkpoint_parse_name(entry->d_name, ending, &step))
            continue;
        if (*count == room) {
            uint32_t *more = realloc(*steps, (room = room * 2 + 16) * sizeof *more);
            if (more == NULL) {
                free(*steps);
                *steps = NULL;
                (void)closedir(dir);
                return err_set(err, STATUS_MEMORY, 0, "%s: no memory to list it", path);
            }
            *steps = more;
        }
        (*steps)[(*count)++] = step;
    }
    (void)closedir(dir);
    if (*count > 0)
        qsort(*steps, *count, sizeof **steps, newest_first);
    return STATUS_OK;
}

void checkpoint_make_paths(struct checkpoint_paths *paths, const char *dir, uint32_t step)
{
    *paths = (struct checkpoint_paths){.tensors = ""};
    checkpoint_file_path(paths->tensors, dir, step, ".safetensors");
    checkpoint_file_path(paths->state, dir, step, ".json");
}

void checkpoint_temp_path(char *out, const struct checkpoint_dir *dir, const char *path)
{
    assert(dir->id[0] != '\0');
    (void)snprintf(out, PATH_BYTES, "%.*s.%s.tmp", PATH_BYTES - 32, path, dir->id);
}

void checkpoint_make_temp_paths(struct checkpoint_paths *paths, const struct checkpoint_dir *dir,
                                uint32_t step)
{
    checkpoint_make_paths(paths, dir->path, step);
    checkpoint_temp_path(paths->tensors_temp, dir, paths->tensors);
    checkpoint_temp_path(paths->state_temp, dir, paths->state);
}
