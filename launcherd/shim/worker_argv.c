#include "launcherd/shim/worker_argv.h"

#include <stdio.h>
#include <string.h>

#include "common/launch.h"

char **worker_argv_build(const struct msg_start *start, uint32_t local, struct arena *arena)
{
    const struct msg_text_list *from = &start->argv;
    uint32_t before = UINT32_MAX, count = 0;
    const char *name = launch_local_rank_arg(&start->launch, from->count, &before);
    char **argv = arena_alloc(arena, ((size_t)from->count + 2) * sizeof *argv);

    for (uint32_t i = 0; argv != NULL && i <= from->count; i++) {
        if (i == before) {
            char text[128];
            (void)snprintf(text, sizeof text, "--%.100s=%u", name, local);
            argv[count++] = arena_text(arena, text, strlen(text));
            if (argv[count - 1] == NULL)
                return NULL;
        }
        if (i == from->count)
            break;
        argv[count++] = arena_text(arena, from->items[i], strlen(from->items[i]));
        if (argv[count - 1] == NULL)
            return NULL;
    }
    if (argv != NULL)
        argv[count] = NULL;
    return argv;
}
