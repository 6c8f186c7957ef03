#include "ddpctl/standalone_gpus.h"

#include <assert.h>
#include <ctype.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/nvml_library.h"

extern char **environ;

/* Reads what `launcherd --list-gpus` prints, up to `text_bytes`; false: it failed. It ends soon:
 * launcherd waits for NVML for a limited time only. */
static bool read_output(const char *program, char *text, size_t text_bytes)
{
    char name[] = "launcherd", option[] = "--list-gpus";
    char *argv[] = {name, option, NULL};
    posix_spawn_file_actions_t actions;
    size_t used = 0;
    int pipe_fds[2], status = -1;
    pid_t pid;

    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return false;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    bool started = posix_spawn(&pid, program, &actions, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_fds[1]);
    while (started && used < text_bytes - 1) {
        ssize_t got = read(pipe_fds[0], text + used, text_bytes - 1 - used);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    text[used] = '\0';
    close(pipe_fds[0]);
    return started && waitpid(pid, &status, 0) == pid && status == 0;
}

static bool has(const struct standalone_gpus *gpus, uint32_t number)
{
    for (uint32_t i = 0; i < gpus->count; i++)
        if (gpus->items[i] == number)
            return true;
    return false;
}

static void take_list(struct standalone_gpus *gpus, const char *text)
{
    char *end;

    for (; gpus->count < SLOTS_PER_NODE_MAX; text = end) {
        unsigned long number = strtoul(text, &end, 10);

        if (end == text || number >= SLOTS_PER_NODE_MAX)
            return;
        gpus->items[gpus->count++] = (uint32_t)number;
    }
}

/* Limits the GPUs to `visible`, read as CUDA does: the list ends before the first number that is no
 * GPU or is repeated. */
static enum status limit(struct standalone_gpus *gpus, const char *visible, struct err *err)
{
    struct standalone_gpus of_machine = *gpus;

    *gpus = (struct standalone_gpus){.is_limited = true};
    for (const char *at = visible; *at;) {
        char *end;
        long number = strtol(at, &end, 10);

        if (end == at || (*end != ',' && *end != '\0'))
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "CUDA_VISIBLE_DEVICES=%.80s: run --standalone gives its nodes GPUs by "
                           "number; write numbers, as nvidia-smi shows them",
                           visible);
        if (number < 0 || number >= SLOTS_PER_NODE_MAX || !has(&of_machine, (uint32_t)number) ||
            has(gpus, (uint32_t)number))
            return STATUS_OK;
        gpus->items[gpus->count++] = (uint32_t)number;
        at = end + (*end == ',');
    }
    return STATUS_OK;
}

enum status standalone_gpus_find(struct standalone_gpus *gpus, const char *launcherd,
                                 const char *visible, struct err *err)
{
    char text[1024];

    *gpus = (struct standalone_gpus){0};
    if (nvml_library_is_there() && read_output(launcherd, text, sizeof text))
        take_list(gpus, text);
    if (visible == NULL || gpus->count == 0)
        return STATUS_OK;
    return limit(gpus, visible, err);
}

static bool is_enough(const struct standalone_gpus *gpus, uint32_t nodes, uint32_t workers)
{
    return (uint64_t)nodes * workers <= gpus->count;
}

void standalone_gpus_share(const struct standalone_gpus *gpus, uint32_t nodes, uint32_t workers,
                           uint32_t node, char *text, size_t text_bytes)
{
    bool enough = is_enough(gpus, nodes, workers);
    uint32_t first = enough ? node * workers : 0, count = enough ? workers : gpus->count;
    size_t used = 0;

    assert(node < nodes && text_bytes >= 4u * SLOTS_PER_NODE_MAX);
    text[0] = '\0';
    if (gpus->count == 0 && !gpus->is_limited)
        return;
    if (gpus->count == 0 || (!enough && nodes > 1)) {
        (void)snprintf(text, text_bytes, "none");
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%u", i > 0 ? "," : "",
                                 gpus->items[first + i]);
}

void standalone_gpus_explain(const struct standalone_gpus *gpus, uint32_t nodes, uint32_t workers,
                             char *text, size_t text_bytes)
{
    const char *plural = gpus->count == 1 ? "" : "s";

    text[0] = '\0';
    if (gpus->count == 0 || is_enough(gpus, nodes, workers))
        return;
    if (nodes == 1)
        (void)snprintf(text, text_bytes,
                       "%u workers share %u GPU%s; --nproc-per-node gpu starts one for each GPU",
                       workers, gpus->count, plural);
    else
        (void)snprintf(text, text_bytes,
                       "%u GPU%s here and %u workers on %u nodes: they run without a GPU, on the "
                       "CPU; %s gives each worker one",
                       gpus->count, plural, nodes * workers, nodes,
                       gpus->count >= nodes ? "--nproc-per-node gpu" : "--nodes 1");
}
