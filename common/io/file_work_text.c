#include <stdio.h>
#include <string.h>

#include "common/io/file_work_inside.h"

/* A call is one of a few texts that threads share, so it travels as a number with the disk. */
static const char *const calls[] = {"a call",  "mkdir",  "open",  "read",    "write",   "rename",
                                    "link",    "unlink", "stat",  "statvfs", "connect", "opendir",
                                    "utimens", "exec",   "fsync", "bind"};

void file_work_at(struct file_work *work, enum file_disk disk, const char *call)
{
    uint32_t number = 0;

    for (uint32_t i = 1; i < sizeof calls / sizeof calls[0]; i++)
        if (strcmp(calls[i], call) == 0)
            number = i;
    atomic_store(&work->at, (uint32_t)disk << 8 | number);
}

enum file_disk file_work_disk(struct file_work *work)
{
    return (enum file_disk)(atomic_load(&work->at) >> 8);
}

void file_work_explain(struct file_work *work, const char *dir, bool is_it, uint32_t limit_ms,
                       char *text, size_t text_bytes)
{
    static const char *const names[] = {"",          "logs", "state directory",
                                        "processes", "",     "staged directories"};
    const uint32_t at = atomic_load(&work->at), disk = at >> 8, s = (limit_ms + 500) / 1000;

    if (disk == FILE_DISK_NONE)
        (void)snprintf(text, text_bytes, "a disk does not answer: it took longer than %u s", s);
    else if (disk == FILE_DISK_PROGRAM)
        (void)snprintf(
            text, text_bytes,
            "the disk of launcherd's program does not answer: exec%s took longer than %u s",
            is_it ? "" : " of an earlier order", s);
    else if (disk == FILE_DISK_PROC)
        (void)snprintf(text, text_bytes, "the kernel does not answer about a process in %u s", s);
    else
        (void)snprintf(text, text_bytes,
                       "the disk of %.100s (%s) does not answer: %s%s took longer than %u s", dir,
                       names[disk], calls[at & 0xff], is_it ? "" : " of an earlier order", s);
}
