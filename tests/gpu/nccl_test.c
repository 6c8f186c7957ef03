/* NCCL itself, as far as one GPU goes: a communicator of one rank, on which a sum changes nothing;
 * queued, captured and replayed, ended in order and by abort. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/values.h"
#include "tests/gpu/device.h"
#include "tests/lib/test.h"
#include "worker/backend/cuda/module/load.h"

enum { COUNT = 100003, MINUTE_US = 60 * 1000000 };

static const struct cuda_module *cuda;

static void need_gpu(void)
{
    const struct cuda_load_options options = {.device_index = 0};
    static struct err err;
    struct cuda_device device;

    if (cuda == NULL && cuda_load(&options, &cuda, &device, &err) != STATUS_OK)
        SKIP(err.text);
    if (cuda->nccl == NULL)
        SKIP("the CUDA module was built without NCCL");
}

static bool nobody_gone(void *user, struct err *err)
{
    (void)user;
    (void)err;
    return false;
}

static struct nccl_link *open_link(const char *address)
{
    struct nccl_link_options options = {
        .world = 1, .timeout_us = MINUTE_US, .address = address, .gone = nobody_gone};
    struct nccl_link *link = NULL;

    CHECK_CUDA(cuda->nccl->id_new(NULL, address, options.id, &err_));
    CHECK_CUDA(cuda->nccl->open(&link, &options, &err_));
    return link;
}

/* A buffer of 0, 1, 2, ... 63 over and over, and the stream that works on it. */
struct buffer {
    struct CUstream_st *stream;
    enum kernel_type type;
    size_t bytes;
    void *host, *device;
};

static struct buffer buffer_new(enum kernel_type type)
{
    struct buffer buffer = {.type = type, .bytes = COUNT * (type == KERNEL_F32 ? 4U : 2U)};

    buffer.host = malloc(buffer.bytes);
    CHECK(buffer.host != NULL);
    for (size_t i = 0; i < COUNT; i++)
        values_set(buffer.host, type, i, (float)(i % 64));
    CHECK_CUDA(cuda->runtime->stream_new(&buffer.stream, &err_));
    CHECK_CUDA(cuda->memory_new(&buffer.device, buffer.bytes, 0x7b, &err_));
    CHECK_CUDA(cuda->copy_in(buffer.device, buffer.host, buffer.bytes, &err_));
    return buffer;
}

static void buffer_check(const struct buffer *buffer)
{
    CHECK_CUDA(cuda->runtime->stream_sync(buffer->stream, &err_));
    CHECK_CUDA(cuda->copy_out(buffer->host, buffer->device, buffer->bytes, &err_));
    for (size_t i = 0; i < COUNT; i++) {
        const float got = values_get(buffer->host, buffer->type, i);

        if (!(got == (float)(i % 64))) /* exact in every type */
            FAIL("value %zu is %g", i, (double)got);
    }
}

static void buffer_free(struct buffer *buffer)
{
    free(buffer->host);
    cuda->memory_free(&buffer->device);
    cuda->runtime->stream_free(&buffer->stream);
}

static void sum(struct nccl_link *link, const struct buffer *buffer)
{
    CHECK_CUDA(cuda->nccl->queue_sum(link, buffer->device, COUNT, (enum graph_dtype)buffer->type,
                                     buffer->stream, &err_));
}

TEST(sums_of_every_type)
{
    struct nccl_link *link;

    need_gpu();
    link = open_link("127.0.0.1");
    for (int type = KERNEL_F32; type <= KERNEL_BF16; type++) {
        struct buffer buffer = buffer_new((enum kernel_type)type);

        sum(link, &buffer);
        buffer_check(&buffer);
        sum(link, &buffer);
        buffer_check(&buffer);
        buffer_free(&buffer);
    }
    CHECK_CUDA(cuda->nccl->check(link, &err_));
    cuda->nccl->close(&link, MINUTE_US);
    CHECK(link == NULL);
}

/* As in a captured step: written down once, then replayed; the memory is known to NCCL. */
TEST(sums_in_a_capture)
{
    struct CUgraphExec_st *graph = NULL;
    struct nccl_link *link;
    struct buffer buffer;

    need_gpu();
    link = open_link(NULL);
    buffer = buffer_new(KERNEL_F16);
    CHECK_CUDA(cuda->nccl->register_memory(link, buffer.device, buffer.bytes, &err_));
    sum(link, &buffer); /* connections are made by the first */
    CHECK_CUDA(cuda->runtime->stream_sync(buffer.stream, &err_));
    CHECK_CUDA(cuda->runtime->capture_begin(buffer.stream, &err_));
    sum(link, &buffer);
    CHECK_CUDA(cuda->runtime->capture_end(buffer.stream, &graph, &err_));
    CHECK(graph != NULL);
    buffer_check(&buffer); /* writing down does nothing */
    CHECK_CUDA(cuda->runtime->queue_graph(graph, buffer.stream, &err_));
    CHECK_CUDA(cuda->runtime->queue_graph(graph, buffer.stream, &err_));
    buffer_check(&buffer);
    cuda->runtime->graph_free(&graph);
    cuda->nccl->close(&link, MINUTE_US);
    buffer_free(&buffer);
}

/* As a net's gradients: NCCL's own memory, registered in full. */
TEST(sums_in_nccl_s_memory)
{
    struct nccl_link *link;
    struct buffer buffer;
    void *own, *memory = NULL;

    need_gpu();
    link = open_link(NULL);
    buffer = buffer_new(KERNEL_F16);
    CHECK_CUDA(cuda->nccl->memory_new(NULL, &memory, buffer.bytes, &err_));
    CHECK_CUDA(cuda->copy_in(memory, buffer.host, buffer.bytes, &err_));
    CHECK_CUDA(cuda->nccl->register_memory(link, memory, buffer.bytes, &err_));
    own = buffer.device;
    buffer.device = memory;
    sum(link, &buffer);
    buffer_check(&buffer);
    buffer.device = own;
    cuda->nccl->close(&link, MINUTE_US);
    cuda->nccl->memory_free(NULL, &memory);
    CHECK(memory == NULL);
    buffer_free(&buffer);
}

TEST(nothing_works_behind_an_abort)
{
    struct nccl_link *link;
    struct buffer buffer;
    struct err err;

    need_gpu();
    link = open_link(NULL);
    buffer = buffer_new(KERNEL_F32);
    sum(link, &buffer);
    CHECK_CUDA(cuda->runtime->stream_sync(buffer.stream, &err_));
    cuda->nccl->abort(link);
    CHECK_EQ(cuda->nccl->queue_sum(link, buffer.device, COUNT, GRAPH_F32, buffer.stream, &err),
             STATUS_CLOSED);
    cuda->nccl->close(&link, MINUTE_US);
    buffer_check(&buffer);
    buffer_free(&buffer);
}

TEST_MAIN
