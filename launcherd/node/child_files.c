#include "launcherd/node/child_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcherd/process/spawn.h"

enum { WORDS_MAX = 32 };

extern char **environ;

enum status child_files_start(struct file_work *work, const struct child_order *order, int stdin_fd,
                              int stdout_fd, int stderr_fd, int extra_fd, struct err *err)
{
    char *argv[WORDS_MAX + 1], *at = order->words.bytes;
    struct spawn_order spawn = {.path = "/proc/self/exe",
                                .argv = argv,
                                .envp = environ,
                                .stdin_fd = stdin_fd,
                                .stdout_fd = stdout_fd,
                                .stderr_fd = stderr_fd,
                                .extra_fd = extra_fd,
                                .dies_with_parent = order->dies_with_parent,
                                .watch = &order->child->watch};
    int exit_code;
    pid_t pid;

    if (order->words.failed || order->word_count > WORDS_MAX)
        return err_set(err, STATUS_MEMORY, ENOMEM, "no memory");
    for (uint32_t i = 0; i < order->word_count; i++) {
        argv[i] = at;
        at += strlen(at) + 1;
    }
    argv[order->word_count] = NULL;
    if (order->dies_with_parent)
        work->keeps_thread = true;
    file_work_at(work, FILE_DISK_PROGRAM, "exec");
    return spawn_process(&spawn, &pid, &exit_code, err);
}

static void run(struct file_work *work)
{
    struct child_files *files = (struct child_files *)work;
    const int null_fd = spawn_open_null(O_RDWR);

    if (null_fd < 0) {
        files->status = err_set(&files->err, STATUS_SYSTEM, errno, "cannot open /dev/null: %s",
                                strerror(errno));
        return;
    }
    files->status = child_files_start(
        work, &files->order, files->stdin_fd >= 0 ? files->stdin_fd : null_fd, files->stdout_fd,
        files->stderr_fd >= 0 ? files->stderr_fd : null_fd, -1, &files->err);
    (void)close(null_fd);
}

static void drop(struct file_work *work)
{
    struct child_files *files = (struct child_files *)work;

    if (files->stdin_fd >= 0)
        (void)close(files->stdin_fd);
    if (files->stdout_fd >= 0)
        (void)close(files->stdout_fd);
    if (files->stderr_fd >= 0)
        (void)close(files->stderr_fd);
    child_order_drop(&files->order);
    free(files);
}

struct child_files *child_files_new(struct node_child *child, const char *mode, void *owner)
{
    struct child_files *files = calloc(1, sizeof *files);

    if (files == NULL)
        return NULL;
    files->stdin_fd = files->stdout_fd = files->stderr_fd = -1;
    files->owner = owner;
    files->work.lane = FILE_LANE_ASK;
    files->work.run = run;
    files->work.drop = drop;
    child_order_new(&files->order, child, mode);
    files->order.dies_with_parent = true;
    return files;
}
