/* Which pictures a folder has, by the rules of torchvision's ImageFolder: every sub-folder is a
 * class, in the order of their names. A class's pictures are the files below it, at any depth and
 * also through symbolic links, whose names end with one of FOLDER_ENDINGS. They are sorted by
 * folder, then by name.
 *
 * Names are compared as bytes, which for UTF-8 is Python's order. Three differences to torchvision: a
 * hidden folder (.ipynb_checkpoints) is no class, a
 * symbolic link that leads back to a folder above it is not followed, and folders that cannot be
 * listed are reported, not silently left out. */
#ifndef WORKER_DATA_FOLDER_LIST_H
#define WORKER_DATA_FOLDER_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define FOLDER_ENDINGS ".jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp"
#define FOLDER_CLASSES_MAX 65536U
#define FOLDER_FILES_MAX (UINT32_MAX / 20 - 1) /* as many as a sampler can order */
#define FOLDER_LINKED_MAX 50000U /* folders that are reached through links inside of classes */
#define FOLDER_PROBLEMS 10

struct folder_file {
    const char *dir, *name; /* dir: with the path of the list */
    uint32_t class;
};

struct folder_list {
    const char **classes; /* [class_count] names */
    uint32_t class_count;
    struct folder_file *files;
    size_t file_count;
    /* Reasons why the first of the left-out folders were left out. */
    struct err problems[FOLDER_PROBLEMS];
    uint32_t problem_count;
    uint32_t hidden_count; /* hidden folders beside the classes; the first one's name */
    const char *hidden;
    struct names *names; /* what all names point into */
};

/* Lists `path`. Errors: STATUS_NOT_FOUND, STATUS_BAD_INPUT (not a folder, no class in it, a class
 * without pictures unless allow_empty, no picture), STATUS_TOO_BIG, STATUS_IO, STATUS_MEMORY. */
enum status folder_list_read(struct folder_list *list, const char *path, bool allow_empty,
                             struct err *err);
void folder_list_close(struct folder_list *list);

/* Whether `path` is a folder with a sub-folder. */
bool folder_has_classes(const char *path);

#endif
