#include "launcherd/shim/environ_files.h"

#include <stdio.h>

static uint32_t look_at(const struct environ_files *files, pid_t pid)
{
    char entry[32];

    for (uint32_t i = 0; i < files->local_count; i++) {
        const int bytes = snprintf(entry, sizeof entry, "RANK=%u", files->rank_base + i);

        if (proc_environment_has(pid, entry, (size_t)bytes + 1))
            return i;
    }
    return 0;
}

void environ_files_look(struct file_work *work)
{
    struct environ_files *files = (struct environ_files *)work;

    file_work_at(work, FILE_DISK_PROC, "read");
    for (uint32_t i = 0; i < files->count && !file_work_is_late(work); i++)
        if (files->locals[i] == ENVIRON_UNKNOWN)
            files->seen[i] = look_at(files, files->found[i].pid);
}
