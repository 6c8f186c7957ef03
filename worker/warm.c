#include "worker/warm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/backend/cuda/module/runtime.h"

#define WARM_VARIABLE "DDP_WARM_FD"
#define SHIM_VARIABLE "DDP_SHIM_FD"

#define READY "a" /* and it will say that it has taken its place */
#define TAKEN "t"

enum { TAKEN_STDIN, TAKEN_STDOUT, TAKEN_STDERR, TAKEN_SHIM, TAKEN_ENVIRONMENT, TAKEN_COUNT };

/* NOLINTBEGIN(concurrency-mt-unsafe): before the first thread */

bool warm_is_wanted(void)
{
    return getenv(WARM_VARIABLE) != NULL;
}

static enum status read_number(const char *name, int *value, struct err *err)
{
    const char *text = getenv(name);
    char *end = NULL;
    const long number = text == NULL ? -1 : strtol(text, &end, 10);

    if (number < 0 || number > 65535 || end == text || *end != '\0')
        return err_set(err, STATUS_BAD_INPUT, 0, "environment: %s=%.40s: expected a number", name,
                       text == NULL ? "" : text);
    *value = (int)number;
    return STATUS_OK;
}

enum status warm_up(struct device *device, const char *asked, struct err *err)
{
    struct err notice;
    size_t free_bytes, total_bytes;
    int local_rank;
    enum status status = read_number("LOCAL_RANK", &local_rank, err);

    if (status == STATUS_OK)
        status = device_open(device, asked, (uint32_t)local_rank, &notice, err);
    if (status == STATUS_OK && device->runtime != NULL)
        status = device->runtime->memory_info(&free_bytes, &total_bytes, err); /* needs a context */
    return status;
}

static enum status take(int from, int fds[TAKEN_COUNT], struct err *err)
{
    union {
        char bytes[CMSG_SPACE(TAKEN_COUNT * sizeof(int))];
        struct cmsghdr align;
    } control;
    char byte;
    struct iovec bytes = {.iov_base = &byte, .iov_len = 1};
    struct msghdr msg = {.msg_iov = &bytes,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof control.bytes};
    const struct cmsghdr *head;
    ssize_t got;

    do
        got = recvmsg(from, &msg, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got == 0 || (got < 0 && errno == ECONNRESET))
        return err_set(err, STATUS_CLOSED, 0, "it was not needed");
    head = got < 0 ? NULL : CMSG_FIRSTHDR(&msg);
    if (head == NULL || head->cmsg_type != SCM_RIGHTS ||
        head->cmsg_len != CMSG_LEN(TAKEN_COUNT * sizeof(int)))
        return err_set(err, STATUS_SYSTEM, got < 0 ? errno : 0,
                       "its place did not come over " WARM_VARIABLE);
    memcpy(fds, CMSG_DATA(head), TAKEN_COUNT * sizeof(int));
    return STATUS_OK;
}

/* The texts stay for as long as the process. */
static enum status change_environment(int fd, struct err *err)
{
    struct stat stat;
    char *texts = NULL;

    if (fstat(fd, &stat) == 0 && stat.st_size > 0)
        texts = malloc((size_t)stat.st_size);
    if (texts == NULL || pread(fd, texts, (size_t)stat.st_size, 0) != stat.st_size ||
        texts[stat.st_size - 1] != '\0' || clearenv() != 0) {
        free(texts);
        return err_set(err, STATUS_SYSTEM, errno, "the environment of its place cannot be read");
    }
    for (char *at = texts; at < texts + stat.st_size; at += strlen(at) + 1)
        if (putenv(at) != 0)
            return err_set(err, STATUS_MEMORY, errno, "no memory for the environment");
    return STATUS_OK;
}

/* NOLINTEND(concurrency-mt-unsafe) */

enum status warm_wait(struct err *err)
{
    int from, answer, shim = -1, fds[TAKEN_COUNT];
    enum status status = read_number(WARM_VARIABLE, &from, err);

    if (status == STATUS_OK && send(from, READY, 1, MSG_NOSIGNAL) != 1)
        status = err_set(err, STATUS_CLOSED, errno, "it was not needed");
    if (status == STATUS_OK)
        status = take(from, fds, err);
    if (status != STATUS_OK)
        return status;
    status = change_environment(fds[TAKEN_ENVIRONMENT], err);
    if (status == STATUS_OK)
        status = read_number(SHIM_VARIABLE, &shim, err);
    answer = fcntl(from, F_DUPFD_CLOEXEC, (shim > STDERR_FILENO ? shim : STDERR_FILENO) + 1);
    if (status == STATUS_OK &&
        (dup2(fds[TAKEN_STDIN], STDIN_FILENO) < 0 || dup2(fds[TAKEN_STDOUT], STDOUT_FILENO) < 0 ||
         dup2(fds[TAKEN_STDERR], STDERR_FILENO) < 0 || dup2(fds[TAKEN_SHIM], shim) < 0))
        status = err_set(err, STATUS_SYSTEM, errno, "its descriptors cannot be taken over");
    for (int i = 0; i < TAKEN_COUNT; i++)
        if (fds[i] > STDERR_FILENO && fds[i] != shim)
            (void)close(fds[i]);
    if (from != shim)
        (void)close(from);
    if (status == STATUS_OK)
        (void)send(answer, TAKEN, 1,
                   MSG_NOSIGNAL); /* a launcher that does not listen has closed it */
    if (answer >= 0)
        (void)close(answer);
    return status;
}
