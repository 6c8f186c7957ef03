/* Which tars the option DATA names. See shards.h. */
#include "worker/data/shards/shards.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERN_BYTES_MAX = 4096, NUMBER_DIGITS_MAX = 9, BRACES_MAX = 8 };

bool shard_list_is_pattern(const char *data)
{
    const size_t length = strlen(data);

    return strchr(data, '{') != NULL || (length > 4 && strcmp(data + length - 4, ".tar") == 0);
}

static enum status list_add(struct shard_list *list, const char *path, struct err *err)
{
    if (list->count >= SHARDS_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "over %u shards", SHARDS_MAX);
    if ((list->count & (list->count - 1)) == 0) { /* full: the capacity is a power of two, or 0 */
        const size_t room = list->count == 0 ? 1 : 2 * list->count;
        char **more = realloc((void *)list->paths, room * sizeof *more);

        if (more == NULL)
            return err_set(err, STATUS_MEMORY, 0, "no memory for the names of shards");
        list->paths = more;
    }
    list->paths[list->count] = strdup(path);
    if (list->paths[list->count] == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the names of shards");
    list->count++;
    return STATUS_OK;
}

/* -- patterns -- */

static enum status expand(struct shard_list *list, const char *pattern, int depth, struct err *err);

static enum status expand_with(struct shard_list *list, const char *pattern, size_t head_bytes,
                               const char *middle, int middle_bytes, const char *tail, int depth,
                               struct err *err)
{
    char whole[PATTERN_BYTES_MAX];
    int n = snprintf(whole, sizeof whole, "%.*s%.*s%s", (int)head_bytes, pattern, middle_bytes,
                     middle, tail);

    if (n < 0 || (size_t)n >= sizeof whole)
        return err_set(err, STATUS_TOO_BIG, 0, "%.80s...: the name is too long", pattern);
    return expand(list, whole, depth + 1, err);
}

/* `{000..123}`. */
static bool parse_range(const char *inside, size_t inside_bytes, unsigned long *from,
                        unsigned long *to, int *digits)
{
    char text[2 * NUMBER_DIGITS_MAX + 3], *dots, *end;

    if (inside_bytes >= sizeof text)
        return false;
    memcpy(text, inside, inside_bytes);
    text[inside_bytes] = '\0';
    dots = strstr(text, "..");
    if (dots == NULL || dots == text || dots - text > NUMBER_DIGITS_MAX ||
        strspn(text, "0123456789") != (size_t)(dots - text) || dots[2] == '\0' ||
        strspn(dots + 2, "0123456789") != strlen(dots + 2) || strlen(dots + 2) > NUMBER_DIGITS_MAX)
        return false;
    *from = strtoul(text, &end, 10);
    *to = strtoul(dots + 2, &end, 10);
    *digits = (int)(dots - text);
    return *from <= *to;
}

static enum status expand_range(struct shard_list *list, const char *pattern, size_t head_bytes,
                                const char *inside, const char *close, int depth, struct err *err)
{
    unsigned long from, to;
    int digits;
    enum status status = STATUS_OK;

    if (!parse_range(inside, (size_t)(close - inside), &from, &to, &digits))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%.100s: expected {FIRST..LAST} with numbers, or {x,y}, found {%.*s}",
                       pattern, close - inside < 40 ? (int)(close - inside) : 40, inside);
    for (unsigned long i = from; status == STATUS_OK && i <= to; i++) {
        char number[32];
        int n = snprintf(number, sizeof number, "%0*lu", digits, i);
        status = expand_with(list, pattern, head_bytes, number, n, close + 1, depth, err);
    }
    return status;
}

/* The depth is limited by BRACES_MAX. */
static enum status expand(struct shard_list *list, const char *pattern,
                          int depth, /* NOLINT(misc-no-recursion) */
                          struct err *err)
{
    const char *open = strchr(pattern, '{'), *close, *comma;
    enum status status = STATUS_OK;

    if (open == NULL)
        return list_add(list, pattern, err);
    close = strchr(open, '}');
    if (close == NULL || depth >= BRACES_MAX)
        return err_set(err, STATUS_BAD_INPUT, 0, "%.120s: %s", pattern,
                       close == NULL ? "a { without its }" : "too many {}");
    comma = memchr(open, ',', (size_t)(close - open));
    if (comma == NULL)
        return expand_range(list, pattern, (size_t)(open - pattern), open + 1, close, depth, err);
    for (const char *at = open + 1; status == STATUS_OK && at <= close; at = comma + 1) {
        comma = at;
        while (comma < close && *comma != ',')
            comma++;
        status = expand_with(list, pattern, (size_t)(open - pattern), at, (int)(comma - at),
                             close + 1, depth, err);
    }
    return status;
}

/* Whether the file's name, or that of its folder, begins with "val". */
static bool is_of_validation(const char *path)
{
    const char *name = strrchr(path, '/'), *folder = name;

    if (name == NULL)
        return strncmp(path, "val", 3) == 0;
    while (folder > path && folder[-1] != '/')
        folder--;
    return strncmp(name + 1, "val", 3) == 0 || strncmp(folder, "val", 3) == 0;
}

static enum status from_pattern(struct shard_list *list, const char *data, bool is_validation,
                                struct err *err)
{
    struct shard_list all = {0};
    enum status status = expand(&all, data, 0, err);

    for (size_t i = 0; status == STATUS_OK && i < all.count; i++)
        if (is_of_validation(all.paths[i]) == is_validation)
            status = list_add(list, all.paths[i], err);
    shard_list_free(&all);
    return status;
}

/* -- folders -- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the files of `dir` whose names match. */
static enum status from_folder(struct shard_list *list, const char *dir, const char *names,
                               struct err *err)
{
    DIR *folder = opendir(dir);
    enum status status = STATUS_OK;
    const struct dirent *entry;

    if (folder == NULL && (errno == ENOENT || errno == ENOTDIR))
        return STATUS_OK;
    if (folder == NULL)
        return err_set(err, STATUS_IO, errno, "%.150s: cannot read the folder: %s", dir,
                       strerror(errno));
    while (status == STATUS_OK && (entry = readdir(folder)) != NULL) {
        char path[PATTERN_BYTES_MAX];
        int n = snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);

        if (fnmatch(names, entry->d_name, FNM_PERIOD) != 0)
            continue;
        status = n > 0 && (size_t)n < sizeof path
                     ? list_add(list, path, err)
                     : err_set(err, STATUS_TOO_BIG, 0, "%.100s: the path is too long", dir);
    }
    (void)closedir(folder);
    return status;
}

enum status shard_list_find(struct shard_list *list, const char *data, bool is_validation,
                            struct err *err)
{
    char dir[PATTERN_BYTES_MAX];
    const char *set = is_validation ? "val" : "train";
    int n = snprintf(dir, sizeof dir, "%s/%s", data, set);
    enum status status;

    *list = (struct shard_list){0};
    if (n < 0 || (size_t)n >= sizeof dir)
        return err_set(err, STATUS_TOO_BIG, 0, "%.100s...: the path is too long", data);
    if (shard_list_is_pattern(data)) {
        status = from_pattern(list, data, is_validation, err);
    } else {
        status = from_folder(list, data, is_validation ? "val*.tar" : "train*.tar", err);
        if (status == STATUS_OK)
            status = from_folder(list, dir, "*.tar", err);
    }
    if (status != STATUS_OK)
        shard_list_free(list);
    else if (list->count > 1)
        qsort((void *)list->paths, list->count, sizeof *list->paths, by_name);
    return status;
}

void shard_list_free(struct shard_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->paths[i]);
    free((void *)list->paths);
    *list = (struct shard_list){0};
}
