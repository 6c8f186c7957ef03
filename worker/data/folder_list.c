/* Lists the pictures of a folder. See folder_list.h. */
#include "worker/data/folder_list.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "worker/data/fileio.h"

enum { CHUNK_BYTES = 1 << 18, NAMES_SHOWN = 5 };

/* -- names: pieces of memory that never move -- */

struct names {
    struct names *before;
    size_t used, size;
    char bytes[];
};

static const char *keep_name(struct names **names, const char *name)
{
    const size_t bytes = strlen(name) + 1;
    char *at;

    if (*names == NULL || (*names)->size - (*names)->used < bytes) {
        const size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        struct names *more = malloc(sizeof *more + size);

        if (more == NULL)
            return NULL;
        *more = (struct names){.before = *names, .size = size};
        *names = more;
    }
    at = (*names)->bytes + (*names)->used;
    memcpy(at, name, bytes);
    (*names)->used += bytes;
    return at;
}

/* -- the walk -- */

/* A folder that was found; `above` is the index of its parent. */
struct place {
    const char *path;
    uint32_t above; /* its own index for a class */
    bool is_linked; /* reached through a symbolic link inside of its class */
    dev_t dev;
    ino_t ino;
};

struct walk {
    struct folder_list *list;
    struct place *places; /* of the current class */
    uint32_t place_count, place_room, linked_count;
    size_t file_room;
    uint32_t class;
};

static enum status no_memory(struct err *err)
{
    return err_set(err, STATUS_MEMORY, 0, "no memory for the list of pictures");
}

static void add_problem(struct folder_list *list, const struct err *why)
{
    if (list->problem_count < FOLDER_PROBLEMS)
        list->problems[list->problem_count] = *why;
    list->problem_count++;
}

static void cannot_list(struct folder_list *list, const char *path, int code)
{
    struct err why;

    err_fill(&why, STATUS_IO, code, "%.200s: cannot list: %s", path, strerror(code));
    add_problem(list, &why);
}

/* Room for one more of `count` elements. */
static bool make_room(void **array, size_t count, size_t *room, size_t size)
{
    const size_t more = *room > 0 ? *room * 2 : 64;
    void *grown;

    if (count < *room)
        return true;
    grown = realloc(*array, more * size);
    if (grown == NULL)
        return false;
    *array = grown;
    *room = more;
    return true;
}

static bool is_above(const struct walk *walk, uint32_t place, const struct stat *now)
{
    for (;; place = walk->places[place].above) {
        if (walk->places[place].dev == now->st_dev && walk->places[place].ino == now->st_ino)
            return true;
        if (walk->places[place].above == place)
            return false;
    }
}

/* `above`: index of the parent folder, or UINT32_MAX for a class. */
static enum status add_place(struct walk *walk, const char *path, uint32_t above, bool by_link,
                             struct err *err)
{
    struct folder_list *list = walk->list;
    size_t room = walk->place_room;
    bool is_linked;
    void *places = walk->places;
    struct stat now;
    struct err why;

    if (stat(path, &now) != 0) {
        cannot_list(list, path, errno);
        return STATUS_OK;
    }
    if (above != UINT32_MAX && is_above(walk, above, &now)) {
        err_fill(&why, STATUS_CONFLICT, 0,
                 "%.200s: a symbolic link to a folder that it is in: not followed", path);
        add_problem(list, &why);
        return STATUS_OK;
    }
    is_linked = above != UINT32_MAX && (by_link || walk->places[above].is_linked);
    walk->linked_count += is_linked;
    if (walk->linked_count > FOLDER_LINKED_MAX)
        return err_set(
            err, STATUS_TOO_BIG, 0,
            "%.170s: over %u folders are reached through symbolic links: is there a circle?", path,
            FOLDER_LINKED_MAX);
    if (!make_room(&places, walk->place_count, &room, sizeof *walk->places))
        return no_memory(err);
    walk->places = places;
    walk->place_room = (uint32_t)room;
    walk->places[walk->place_count] = (struct place){
        .path = keep_name(&list->names, path),
        .above = above != UINT32_MAX ? above : walk->place_count,
        .is_linked = is_linked,
        .dev = now.st_dev,
        .ino = now.st_ino,
    };
    return walk->places[walk->place_count++].path != NULL ? STATUS_OK : no_memory(err);
}

static bool is_picture(const char *name)
{
    const char *dot = strrchr(name, '.');
    size_t length;

    if (dot == NULL || strchr(dot, ' ') != NULL)
        return false;
    length = strlen(dot);
    for (const char *at = FOLDER_ENDINGS; at != NULL; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncasecmp(at, dot, length) == 0 && (at[length] == ' ' || at[length] == '\0'))
            return true;
    }
    return false;
}

static enum status add_file(struct walk *walk, const char *dir, const char *name, struct err *err)
{
    struct folder_list *list = walk->list;
    void *files = list->files;

    if (!is_picture(name))
        return STATUS_OK;
    if (list->file_count >= FOLDER_FILES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "%.180s: over %u pictures", dir, FOLDER_FILES_MAX);
    if (!make_room(&files, list->file_count, &walk->file_room, sizeof *list->files))
        return no_memory(err);
    list->files = files;
    list->files[list->file_count] =
        (struct folder_file){dir, keep_name(&list->names, name), walk->class};
    return list->files[list->file_count++].name != NULL ? STATUS_OK : no_memory(err);
}

/* As os.path.isdir: through symbolic links. */
static bool is_folder(int dir, const struct dirent *entry)
{
    struct stat now;

    if (entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    return fstatat(dir, entry->d_name, &now, 0) == 0 && S_ISDIR(now.st_mode);
}

static bool is_link(int dir, const struct dirent *entry)
{
    struct stat now;

    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_LNK;
    return fstatat(dir, entry->d_name, &now, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(now.st_mode);
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static enum status add_entry(struct walk *walk, uint32_t place, int dir, const struct dirent *entry,
                             struct err *err)
{
    const char *path = walk->places[place].path;
    char below[PATH_MAX];
    int n;

    if (is_dots(entry->d_name))
        return STATUS_OK;
    if (!is_folder(dir, entry))
        return add_file(walk, path, entry->d_name, err);
    n = snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
    if (n < 0 || (size_t)n >= sizeof below) {
        cannot_list(walk->list, path, ENAMETOOLONG);
        return STATUS_OK;
    }
    return add_place(walk, below, place, is_link(dir, entry), err);
}

static enum status list_place(struct walk *walk, uint32_t place, struct err *err)
{
    DIR *dir = opendir(walk->places[place].path);
    enum status status = STATUS_OK;
    const struct dirent *entry;

    if (dir == NULL) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
            return err_set(err, STATUS_SYSTEM, errno, "%.180s: cannot list: %s",
                           walk->places[place].path, strerror(errno));
        cannot_list(walk->list, walk->places[place].path, errno);
        return STATUS_OK;
    }
    for (errno = 0; status == STATUS_OK && (entry = readdir(dir)) != NULL; errno = 0)
        status = add_entry(walk, place, dirfd(dir), entry, err);
    if (status == STATUS_OK && errno != 0)
        cannot_list(walk->list, walk->places[place].path, errno);
    (void)closedir(dir);
    return status;
}

static int by_place(const void *a, const void *b)
{
    const struct folder_file *one = a, *other = b;
    const int order = strcmp(one->dir, other->dir);

    return order != 0 ? order : strcmp(one->name, other->name);
}

static enum status list_class(struct walk *walk, const char *path, struct err *err)
{
    struct folder_list *list = walk->list;
    const size_t before = list->file_count;
    char dir[PATH_MAX];
    int n = snprintf(dir, sizeof dir, "%s/%s", path, list->classes[walk->class]);
    enum status status;

    if (n < 0 || (size_t)n >= sizeof dir)
        return err_set(err, STATUS_TOO_BIG, 0, "%.180s...: the path is too long", dir);
    walk->place_count = 0;
    status = add_place(walk, dir, UINT32_MAX, false, err);
    for (uint32_t i = 0; status == STATUS_OK && i < walk->place_count; i++)
        status = list_place(walk, i, err);
    if (status == STATUS_OK && list->file_count > before)
        qsort(list->files + before, list->file_count - before, sizeof *list->files, by_place);
    return status;
}

/* -- classes -- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum status open_folder(const char *path, DIR **dir, struct err *err)
{
    *dir = opendir(path);
    if (*dir != NULL)
        return STATUS_OK;
    if (errno == ENOENT)
        return err_set(err, STATUS_NOT_FOUND, errno, "there is no folder %.200s", path);
    if (errno == ENOTDIR)
        return err_set(err, STATUS_BAD_INPUT, errno, "%.200s is not a folder", path);
    return err_set(err, STATUS_IO, errno, "%.200s: cannot list: %s", path, strerror(errno));
}

static enum status add_class(struct folder_list *list, size_t *room, const char *name,
                             struct err *err)
{
    void *classes = list->classes;

    if (list->class_count >= FOLDER_CLASSES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "over %u classes", FOLDER_CLASSES_MAX);
    if (!make_room(&classes, list->class_count, room, sizeof *list->classes))
        return no_memory(err);
    list->classes = classes;
    list->classes[list->class_count] = keep_name(&list->names, name);
    return list->classes[list->class_count++] != NULL ? STATUS_OK : no_memory(err);
}

static enum status add_hidden(struct folder_list *list, const char *name, struct err *err)
{
    if (list->hidden_count++ == 0)
        list->hidden = keep_name(&list->names, name);
    return list->hidden != NULL ? STATUS_OK : no_memory(err);
}

static enum status find_classes(struct folder_list *list, const char *path, struct err *err)
{
    DIR *dir;
    size_t room = 0;
    const struct dirent *entry;
    enum status status = open_folder(path, &dir, err);

    if (status != STATUS_OK)
        return status;
    for (errno = 0; status == STATUS_OK && (entry = readdir(dir)) != NULL; errno = 0)
        if (!is_dots(entry->d_name) && is_folder(dirfd(dir), entry))
            status = entry->d_name[0] == '.' ? add_hidden(list, entry->d_name, err)
                                             : add_class(list, &room, entry->d_name, err);
    if (status == STATUS_OK && errno != 0)
        status = err_set(err, STATUS_IO, errno, "%.200s: cannot list: %s", path, strerror(errno));
    (void)closedir(dir);
    if (status == STATUS_OK && list->class_count == 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%.180s has no folder in it: expected one for each class, with its pictures",
                       path);
    if (status == STATUS_OK)
        qsort(list->classes, list->class_count, sizeof *list->classes, by_name);
    return status;
}

static enum status check_empty(const struct folder_list *list, const char *path,
                               const size_t *counts, bool allow_empty, struct err *err)
{
    char names[120] = "";
    uint32_t empty = 0;

    for (uint32_t i = 0; i < list->class_count; i++) {
        const size_t used = strlen(names);

        if (counts[i] > 0)
            continue;
        if (empty < NAMES_SHOWN)
            (void)snprintf(names + used, sizeof names - used, "%s%.40s", empty > 0 ? ", " : "",
                           list->classes[i]);
        empty++;
    }
    if (empty == list->class_count)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%.120s: no pictures in it: expected files whose names end in one of %s",
                       path, FOLDER_ENDINGS);
    if (empty == 0 || allow_empty)
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "%.80s: %u of %u classes have no picture: %s%s; --allow-empty accepts that",
                   path, empty, list->class_count, names, empty > NAMES_SHOWN ? ", ..." : "");
}

static enum status list_classes(struct walk *walk, const char *path, bool allow_empty,
                                struct err *err)
{
    struct folder_list *list = walk->list;
    size_t *counts = calloc(list->class_count, sizeof *counts);
    enum status status = STATUS_OK;

    if (counts == NULL)
        return no_memory(err);
    for (; status == STATUS_OK && walk->class < list->class_count; walk->class ++) {
        const size_t before = list->file_count;

        status = list_class(walk, path, err);
        counts[walk->class] = list->file_count - before;
    }
    if (status == STATUS_OK)
        status = check_empty(list, path, counts, allow_empty, err);
    free(counts);
    return status;
}

enum status folder_list_read(struct folder_list *list, const char *path, bool allow_empty,
                             struct err *err)
{
    struct walk walk = {.list = list};
    enum status status;

    *list = (struct folder_list){.classes = NULL};
    status = find_classes(list, path, err);
    if (status == STATUS_OK)
        status = list_classes(&walk, path, allow_empty, err);
    free(walk.places);
    if (status != STATUS_OK)
        folder_list_close(list);
    return status;
}

void folder_list_close(struct folder_list *list)
{
    while (list->names != NULL) {
        struct names *before = list->names->before;

        free(list->names);
        list->names = before;
    }
    free(list->classes);
    free(list->files);
    *list = (struct folder_list){.classes = NULL};
}

bool folder_has_classes(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    bool found = false;

    while (dir != NULL && !found && (entry = readdir(dir)) != NULL)
        found = entry->d_name[0] != '.' && is_folder(dirfd(dir), entry);
    if (dir != NULL)
        (void)closedir(dir);
    return found;
}
