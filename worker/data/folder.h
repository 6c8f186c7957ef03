/* A source: the pictures of a folder, found by the rules of torchvision's ImageFolder
 * (folder_list.h) and transformed by the rules of its transforms (picture/picture.h). A file is
 * read when its sample is read. */
#ifndef WORKER_DATA_FOLDER_H
#define WORKER_DATA_FOLDER_H

#include "worker/data/folder_list.h"
#include "worker/data/picture/picture.h"
#include "worker/data/source.h"

#define FOLDER_FILE_BYTES_MAX (512U << 20) /* a larger file is a sample that cannot be read */

struct folder_options {
    struct picture_rules rules;
    uint64_t seed; /* of the random crops and flips */
    bool allow_empty;
};

/* Errors: those of folder_list_read(). */
enum status folder_open(struct source **source, const char *path,
                        const struct folder_options *options, struct err *err);
/* The list of a source that folder_open() made; borrowed. */
const struct folder_list *folder_list_of(const struct source *source);

#endif
