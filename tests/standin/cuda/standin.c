/* Memory behind a fence, copies, and the table of the runtime. Streams are in streams.c. */
#include "tests/standin/cuda/standin.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/standin/cuda/streams.h"

enum { PAGE = 4096, BLOCKS_MAX = 1 << 20 };

static const size_t device_bytes = (size_t)4 << 30; /* of addresses */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *device;
static size_t live_from; /* below it all was given back: closed for good */
static size_t device_used, block_bytes[BLOCKS_MAX]; /* by the page that a block begins at */
static size_t device_blocks, pinned_blocks;
static bool is_open;

struct standin_counts standin_counts(void)
{
    struct standin_counts counts = standin_stream_counts;

    counts.device_blocks = device_blocks;
    counts.pinned_blocks = pinned_blocks;
    return counts;
}

/* -- the fence -- */

/* Under `lock`. */
static void protect(bool opens)
{
    int rc = 0;

    if (device_used > live_from)
        rc = mprotect(device + live_from, device_used - live_from,
                      opens ? PROT_READ | PROT_WRITE : PROT_NONE);
    assert(rc == 0);
    is_open = opens;
}

void standin_fence_open(void)
{
    (void)pthread_mutex_lock(&lock);
    assert(!is_open);
    protect(true);
    (void)pthread_mutex_unlock(&lock);
}

void standin_fence_close(void)
{
    (void)pthread_mutex_lock(&lock);
    assert(is_open);
    protect(false);
    (void)pthread_mutex_unlock(&lock);
}

static bool is_device(const void *memory)
{
    const char *at = memory;

    return device != NULL && at >= device && at < device + device_bytes;
}

/* -- memory -- */

uint32_t standin_device_count(void)
{
    const char *text = getenv("STANDIN_DEVICES");
    const unsigned long count = text != NULL ? strtoul(text, NULL, 10) : 0;

    return count > 0 && count < 1024 ? (uint32_t)count : 1;
}

static enum status standin_device_use(uint32_t index, struct err *err)
{
    const char *path = getenv("STANDIN_USED");
    FILE *file = path != NULL ? fopen(path, "ae") : NULL;

    if (file != NULL) {
        (void)fprintf(file, "%u\n", index);
        (void)fclose(file);
    }
    return index < standin_device_count()
               ? STATUS_OK
               : err_set(err, STATUS_LIBRARY, 101, "no device %u", index);
}

static enum status standin_memory_info(size_t *free_bytes, size_t *total_bytes, struct err *err)
{
    (void)err;
    *free_bytes = device_bytes - device_used;
    *total_bytes = device_bytes;
    return STATUS_OK;
}

static void *take_block(size_t bytes)
{
    const size_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
    void *block;

    if (device == NULL) {
        device =
            mmap(NULL, device_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert(device != MAP_FAILED);
    }
    if (pages > device_bytes - device_used)
        return NULL;
    block = device + device_used;
    assert(device_used / PAGE < BLOCKS_MAX);
    block_bytes[device_used / PAGE] = pages;
    device_used += pages;
    device_blocks++;
    if (is_open)
        protect(true);
    return block;
}

/* Blocks are not used again: a pointer that outlived its block is not hidden by the next one. */
static enum status standin_memory_new(void **memory, size_t bytes, struct err *err)
{
    assert(!standin_is_capturing());
    *memory = NULL;
    if (bytes == 0)
        return STATUS_OK;
    (void)pthread_mutex_lock(&lock);
    *memory = take_block(bytes);
    (void)pthread_mutex_unlock(&lock);
    return *memory != NULL ? STATUS_OK
                           : err_set(err, STATUS_MEMORY, 2, "stand-in: out of device memory");
}

/* cudaFree waits for the device. */
static void standin_memory_free(void **memory)
{
    if (*memory == NULL)
        return;
    assert(is_device(*memory) && !standin_is_capturing());
    standin_sync();
    (void)pthread_mutex_lock(&lock);
    (void)madvise(*memory, block_bytes[(size_t)((char *)*memory - device) / PAGE], MADV_DONTNEED);
    if (--device_blocks == 0 && !is_open)
        live_from = device_used;
    (void)pthread_mutex_unlock(&lock);
    *memory = NULL;
}

static enum status standin_pinned_new(void **memory, size_t bytes, struct err *err)
{
    *memory = malloc(bytes + 1);
    if (*memory == NULL)
        return err_set(err, STATUS_MEMORY, 2, "stand-in: out of memory");
    (void)pthread_mutex_lock(&lock);
    pinned_blocks++;
    (void)pthread_mutex_unlock(&lock);
    return STATUS_OK;
}

/* cudaFreeHost waits for the device, too. */
static void standin_pinned_free(void **memory)
{
    if (*memory == NULL)
        return;
    standin_sync();
    free(*memory);
    (void)pthread_mutex_lock(&lock);
    pinned_blocks--;
    (void)pthread_mutex_unlock(&lock);
    *memory = NULL;
}

/* -- copies -- */

void standin_run_copy(void *args)
{
    const struct standin_copy *copy = args;

    if (copy->from != NULL)
        memmove(copy->to, copy->from, copy->bytes);
    else
        memset(copy->to, 0, copy->bytes);
}

static enum status queue(const struct standin_copy *copy, struct CUstream_st *stream,
                         struct err *err)
{
    const int code = standin_queue(stream, standin_run_copy, copy, sizeof *copy);

    return code == 0 ? STATUS_OK : err_set(err, STATUS_LIBRARY, code, "stand-in: copy failed");
}

static enum status standin_queue_copy_in(void *to, const void *host, size_t bytes,
                                         struct CUstream_st *stream, struct err *err)
{
    assert(is_device(to) && !is_device(host));
    return queue(&(struct standin_copy){to, host, bytes}, stream, err);
}

static enum status standin_queue_copy_out(void *host, const void *from, size_t bytes,
                                          struct CUstream_st *stream, struct err *err)
{
    assert(is_device(from) && !is_device(host));
    return queue(&(struct standin_copy){host, from, bytes}, stream, err);
}

static enum status standin_queue_copy(void *to, const void *from, size_t bytes,
                                      struct CUstream_st *stream, struct err *err)
{
    assert(is_device(from) && is_device(to));
    return queue(&(struct standin_copy){to, from, bytes}, stream, err);
}

static enum status standin_queue_zero(void *memory, size_t bytes, struct CUstream_st *stream,
                                      struct err *err)
{
    assert(is_device(memory));
    return queue(&(struct standin_copy){memory, NULL, bytes}, stream, err);
}

static enum status standin_launched(int code, const char *what, struct err *err)
{
    return code == 0 ? STATUS_OK
                     : err_set(err, STATUS_LIBRARY, code, "stand-in %s: failed on purpose", what);
}

static void standin_device_reset(void)
{
    standin_sync();
}

const struct cuda_runtime standin_runtime = CUDA_RUNTIME_TABLE(standin_);
