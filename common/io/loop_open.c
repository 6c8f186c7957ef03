#include "common/io/loop_open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/io/spare_threads.h"

#define POOL_THREADS_MAX 1024u
#define FILE_THREADS 4u /* for work on files (file_work.h) */

/* As libuv reads it. */
static uint32_t pool_threads(void)
{
    const char *set = getenv("UV_THREADPOOL_SIZE");
    const long count = set != NULL ? strtol(set, NULL, 10) : POOL_THREADS;

    return count < 1 ? 1 : count > POOL_THREADS_MAX ? POOL_THREADS_MAX : (uint32_t)count;
}

static void no_work(uv_work_t *work)
{
    (void)work;
}

static void on_worked(uv_work_t *work, int status)
{
    (void)work;
    (void)status;
}

/* The threads of the pool start with the first work. */
static int start_pool(uv_loop_t *loop)
{
    static uv_work_t work;
    int rc = uv_queue_work(loop, &work, no_work, on_worked);

    if (rc == 0)
        (void)uv_run(loop, UV_RUN_DEFAULT); /* until it is done */
    return rc;
}

static void on_closed(uv_handle_t *handle)
{
    (void)handle;
}

/* libuv's table grows to the highest descriptor that was ever watched, and never shrinks. */
static int grow_table(uv_loop_t *loop, uint32_t descriptors)
{
    struct rlimit limit;
    uv_poll_t poll;
    int fd, high, rc;
    const size_t byte_count = 4 * sizeof(void *) * (size_t)descriptors; /* twice what it takes */
    /* not malloc and free: after a large free, malloc no longer gives memory back in large pieces */
    void *memory =
        mmap(NULL, byte_count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return UV_ENOMEM;
    (void)munmap(memory, byte_count);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < descriptors)
        descriptors = (uint32_t)limit.rlim_cur;
    fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return uv_translate_sys_error(errno);
    high = fcntl(fd, F_DUPFD_CLOEXEC, (int)descriptors - 1);
    (void)close(fd);
    if (high < 0)
        return 0; /* that descriptor is in use: the table cannot be grown in this way */
    rc = uv_poll_init(loop, &poll, high);
    if (rc == 0) {
        (void)uv_poll_start(&poll, UV_READABLE, NULL);
        uv_close((uv_handle_t *)&poll, on_closed);
        (void)uv_run(loop, UV_RUN_DEFAULT);
    }
    (void)close(high);
    return rc;
}

enum status loop_open(uv_loop_t *loop, uint32_t descriptors, struct err *err)
{
    int rc = uv_loop_init(loop);
    enum status status;

    if (rc != 0)
        return err_set(err, STATUS_SYSTEM, rc, "no event loop: %s", uv_strerror(rc));
    /* First the table: the kernel grows its own table with ours, and where threads share that, it waits
     * for all processors (an RCU grace period, some 20 ms). */
    rc = grow_table(loop, descriptors);
    if (rc == 0) {
        status = spare_threads_check(pool_threads() + FILE_THREADS, err);
        if (status != STATUS_OK) {
            (void)uv_loop_close(loop);
            return status;
        }
        rc = start_pool(loop);
    }
    if (rc == 0)
        return STATUS_OK;
    (void)uv_loop_close(loop);
    return err_set(err, rc == UV_ENOMEM ? STATUS_MEMORY : STATUS_SYSTEM, rc,
                   "the event loop cannot get its threads and tables: %s", uv_strerror(rc));
}
