/* Parts of file_work.c: lists of work, and the texts about a disk that does not answer. */
#ifndef COMMON_IO_FILE_WORK_INSIDE_H
#define COMMON_IO_FILE_WORK_INSIDE_H

#include <stddef.h>

#include "common/io/file_work.h"

struct file_work_list {
    struct file_work *first, **last;
};

static inline void file_work_list_init(struct file_work_list *list)
{
    list->first = NULL;
    list->last = &list->first;
}

static inline void file_work_list_add(struct file_work_list *list, struct file_work *work)
{
    work->next = NULL;
    *list->last = work;
    list->last = &work->next;
}

static inline bool file_work_list_remove(struct file_work_list *list, struct file_work *work)
{
    struct file_work **at = &list->first;

    while (*at != NULL && *at != work)
        at = &(*at)->next;
    if (*at == NULL)
        return false;
    *at = work->next;
    if (list->last == &work->next)
        list->last = at;
    work->next = NULL;
    return true;
}

/* What the work does now is about this disk. */
enum file_disk file_work_disk(struct file_work *work);
/* Says what does not answer: the disk with the folder `dir`, for `work`, in `limit_ms`. `is_it`: it is late
 * itself, else what waits for it. */
void file_work_explain(struct file_work *work, const char *dir, bool is_it, uint32_t limit_ms,
                       char *text, size_t text_bytes);

#endif
