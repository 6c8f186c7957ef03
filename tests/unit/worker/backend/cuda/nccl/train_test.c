/* The world's blob with and without NCCL's unique id, and what NCCL is refused for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker/backend/cuda/module/runtime.h"
#include "worker/model/model.h"
#include "worker/options.h"
#include "worker/train/internal.h"

static enum status id_new(const char *library, const char *address, uint8_t id[NCCL_ID_BYTES],
                          struct err *err)
{
    (void)library;
    (void)address;
    (void)err;
    for (uint32_t i = 0; i < NCCL_ID_BYTES; i++)
        id[i] = (uint8_t)(i + 1);
    return STATUS_OK;
}

static const struct cuda_nccl nccl = {.id_new = id_new};
static const struct cuda_runtime runtime; /* that there is one is all that is asked */
static const struct agent_place place = {.rank = 1, .world = 2, .address = "127.0.0.1"};

static struct train train_of(const struct options *options, bool has_gpu)
{
    static const struct device gpu = {.runtime = &runtime, .nccl = &nccl}, cpu;

    return (struct train){.options = options, .place = &place, .device = has_gpu ? &gpu : &cpu};
}

static struct comm_blob blob_of(uint32_t byte_count)
{
    struct comm_blob blob = {.byte_count = byte_count};

    for (uint32_t i = 0; i < byte_count; i++)
        blob.bytes[i] = (uint8_t)(200 - i);
    return blob;
}

static void check_travel(bool has_gpu, const char *comm, uint32_t id_bytes)
{
    const struct options options = {.comm = comm};
    struct train from = train_of(&options, has_gpu), to = from;
    struct comm_blob blob = blob_of(100), own = blob;
    struct err err = {.text = ""};

    CHECK_EQ(train_nccl_choose(&from, &err), STATUS_OK);
    CHECK_EQ(train_nccl_choose(&to, &err), STATUS_OK);
    CHECK_EQ(train_nccl_pack(&from, &blob, &err), STATUS_OK);
    CHECK_EQ(blob.byte_count, 102 + id_bytes);
    CHECK_EQ(train_nccl_unpack(&to, &blob, &err), STATUS_OK);
    CHECK_EQ(blob.byte_count, 100);
    CHECK(memcmp(blob.bytes, own.bytes, 100) == 0);
    for (uint32_t i = 0; i < id_bytes; i++)
        CHECK_EQ(to.nccl_id[i], i + 1);
}

TEST(the_id_travels_with_the_blob)
{
    check_travel(true, "auto", NCCL_ID_BYTES);
    check_travel(true, "nccl", NCCL_ID_BYTES);
    check_travel(true, "gloo", 0);
    check_travel(false, "auto", 0);
}

TEST(ranks_that_differ_are_told)
{
    const struct options with = {.comm = "auto"}, without = {.comm = "gloo"};
    struct train from = train_of(&with, true), to = train_of(&without, true);
    struct comm_blob blob = blob_of(100);
    struct err err = {.text = ""};

    CHECK_EQ(train_nccl_choose(&from, &err), STATUS_OK);
    CHECK_EQ(train_nccl_choose(&to, &err), STATUS_OK);
    CHECK_EQ(train_nccl_pack(&from, &blob, &err), STATUS_OK);
    CHECK_EQ(train_nccl_unpack(&to, &blob, &err), STATUS_CONFLICT);
    CHECK_STR(err.text, "rank 0 has NCCL, this rank has none: give every rank the same --device "
                        "and --comm");
}

TEST(bent_blobs_are_refused)
{
    const struct options options = {.comm = "auto"};
    struct train train = train_of(&options, false);
    struct err err = {.text = ""};

    for (uint32_t byte_count = 0; byte_count <= COMM_BLOB_BYTES_MAX; byte_count++) {
        struct comm_blob blob = {.byte_count = byte_count}; /* says 0xffff bytes are comm's */

        memset(blob.bytes, 0xff, sizeof blob.bytes);
        CHECK_EQ(train_nccl_unpack(&train, &blob, &err), STATUS_BAD_INPUT);
    }
}

TEST(a_blob_that_leaves_no_room_is_an_error)
{
    const struct options options = {.comm = "auto"};
    struct train train = train_of(&options, true);
    struct comm_blob blob = blob_of(COMM_BLOB_BYTES_MAX - NCCL_ID_BYTES - 1);
    struct err err = {.text = ""};

    CHECK_EQ(train_nccl_choose(&train, &err), STATUS_OK);
    CHECK_EQ(train_nccl_pack(&train, &blob, &err), STATUS_TOO_BIG);
}

TEST(what_nccl_is_not_for)
{
    const struct options by_choice = {.comm = "auto"};
    const struct options on_cpu = {.comm = "nccl"};
    struct train train = train_of(&on_cpu, false);
    struct err err = {.text = ""};

    CHECK_EQ(train_nccl_choose(&train, &err), STATUS_UNSUPPORTED);
    CHECK(strstr(err.text, "--comm nccl: NCCL is for GPUs") != NULL);
    train = train_of(&by_choice, false); /* not on the CPU */
    CHECK_EQ(train_nccl_choose(&train, &err), STATUS_OK);
}

/* -- whether a collective can be captured, over a runtime and an NCCL of these functions -- */

static struct {
    bool is_capturing, refuses;
    uint32_t opened, closed, sums, captured;
    bool blocks; /* of the last one that was opened */
    uint8_t id[NCCL_ID_BYTES];
} fake;

static int thing;

static enum status made_stream(struct CUstream_st **stream, struct err *err)
{
    (void)err;
    *stream = (struct CUstream_st *)(void *)&thing;
    return STATUS_OK;
}

static void free_stream(struct CUstream_st **stream)
{
    *stream = NULL;
}

static enum status made_event(struct CUevent_st **event, struct err *err)
{
    (void)err;
    *event = (struct CUevent_st *)(void *)&thing;
    return STATUS_OK;
}

static void free_event(struct CUevent_st **event)
{
    *event = NULL;
}

static enum status made_memory(void **memory, size_t bytes, struct err *err)
{
    (void)err;
    *memory = malloc(bytes);
    CHECK(*memory != NULL);
    return STATUS_OK;
}

static void free_memory(void **memory)
{
    free(*memory);
    *memory = NULL;
}

static enum status record(struct CUevent_st *event, struct CUstream_st *stream, struct err *err)
{
    (void)err;
    CHECK(event != NULL && stream != NULL && !fake.is_capturing);
    return STATUS_OK;
}

static enum status passed(struct CUevent_st *event, bool *is_passed, struct err *err)
{
    (void)event;
    (void)err;
    *is_passed = true;
    return STATUS_OK;
}

static enum status begin_capture(struct CUstream_st *stream, struct err *err)
{
    (void)err;
    CHECK(stream != NULL && fake.sums > 0); /* connections are there */
    fake.is_capturing = true;
    return STATUS_OK;
}

static enum status end_capture(struct CUstream_st *stream, struct CUgraphExec_st **graph,
                               struct err *err)
{
    (void)stream;
    (void)err;
    CHECK(fake.is_capturing);
    fake.is_capturing = false;
    fake.captured++;
    *graph = NULL;
    return STATUS_OK;
}

static void free_graph(struct CUgraphExec_st **graph)
{
    *graph = NULL;
}

static enum status open_fake(struct nccl_link **link, const struct nccl_link_options *options,
                             struct err *err)
{
    (void)err;
    fake.opened++;
    fake.blocks = options->blocks;
    memcpy(fake.id, options->id, sizeof fake.id);
    *link = (struct nccl_link *)(void *)&thing;
    return STATUS_OK;
}

static void close_fake(struct nccl_link **link, uint64_t timeout_us)
{
    (void)timeout_us;
    CHECK(*link != NULL);
    fake.closed++;
    *link = NULL;
}

static enum status sum_fake(struct nccl_link *link, void *memory, size_t count,
                            enum graph_dtype dtype, struct CUstream_st *stream, struct err *err)
{
    CHECK(link != NULL && memory != NULL && count > 0 && stream != NULL);
    (void)dtype;
    fake.sums++;
    if (fake.is_capturing && fake.refuses && !fake.blocks)
        return err_set(err, STATUS_LIBRARY, 1, "a thread of NCCL cannot capture");
    return STATUS_OK;
}

static enum status register_fake(struct nccl_link *link, void *memory, size_t bytes,
                                 struct err *err)
{
    (void)err;
    CHECK(link != NULL && memory != NULL && bytes > 0);
    return STATUS_OK;
}

static enum status check_fake(struct nccl_link *link, struct err *err)
{
    (void)link;
    (void)err;
    return STATUS_OK;
}

static struct net *new_net(const struct backend *backend);

static void open_and_close(bool refuses)
{
    static const struct cuda_runtime capturing = {.stream_new = made_stream,
                                                  .stream_free = free_stream,
                                                  .event_new = made_event,
                                                  .event_free = free_event,
                                                  .event_record = record,
                                                  .event_passed = passed,
                                                  .memory_new = made_memory,
                                                  .memory_free = free_memory,
                                                  .capture_begin = begin_capture,
                                                  .capture_end = end_capture,
                                                  .graph_free = free_graph};
    static const struct cuda_nccl link = {.id_new = id_new,
                                          .open = open_fake,
                                          .close = close_fake,
                                          .queue_sum = sum_fake,
                                          .register_memory = register_fake,
                                          .check = check_fake};
    static const struct agent_place first = {.rank = 0, .world = 1, .address = "127.0.0.1"};
    static const struct device gpu = {.runtime = &capturing, .nccl = &link};
    const struct comm_options alone = {.rank = 0,
                                       .world = 1,
                                       .job_id = 1,
                                       .generation = 1,
                                       .address = "127.0.0.1",
                                       .timeout_us = 10000000};
    const struct options options = {.comm = "nccl"};
    struct train train = {.options = &options, .place = &first, .device = &gpu, .uses_nccl = true};
    struct comm_blob blob = {.byte_count = 0};
    struct err err = {.text = ""};

    memset(&fake, 0, sizeof fake);
    fake.refuses = refuses;
    CHECK_EQ(comm_open(&train.comm, &alone, &blob, &err), STATUS_OK);
    CHECK_EQ(comm_connect(&train.comm, &alone, &blob, &err), STATUS_OK);
    train.net = new_net(&backend_cpu);
    CHECK_EQ(train_nccl_open(&train, &err), STATUS_OK);
    CHECK_EQ(fake.captured, 1);
    CHECK_EQ(fake.opened, refuses ? 2 : 1);
    CHECK_EQ(fake.closed, refuses ? 1 : 0);
    CHECK_EQ(fake.blocks, refuses);
    CHECK_EQ(fake.id[0], refuses ? 1 : 0); /* a new id, from id_new */
    train_nccl_close(&train);
    CHECK_EQ(fake.closed, fake.opened);
    net_free(&train.net);
    comm_close(&train.comm);
}

TEST(a_communicator_that_blocks_where_the_other_cannot_be_captured)
{
    open_and_close(false);
    open_and_close(true);
}

/* NCCL waits for the end of every capture that it is in. */
static char order[64];

static void note(const char *word)
{
    const size_t at = strlen(order);

    (void)snprintf(order + at, sizeof order - at, "%s", word);
}

static void note_drop(void *state)
{
    (void)state;
    note("captures ");
}

static void note_close(struct nccl_link **link, uint64_t timeout_us)
{
    (void)timeout_us;
    note("link");
    *link = NULL;
}

static struct net *new_net(const struct backend *backend)
{
    const struct net_options options = {.batch_max = 1, .backend = backend};
    const struct model_shape shape = {1, 28, 28, 10};
    struct graph *graph = NULL;
    struct net *net = NULL;

    CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
    CHECK_EQ(net_new(&net, graph, &options, NULL), STATUS_OK);
    graph_free(&graph);
    return net;
}

TEST(records_go_before_the_link)
{
    static int something;
    const struct cuda_nccl closer = {.close = note_close};
    const struct options options = {.comm = "nccl"};
    const struct device device = {.runtime = &runtime, .nccl = &closer};
    struct train train = train_of(&options, true);
    struct backend backend = backend_cpu;

    backend.drop_captures = note_drop;
    train.net = new_net(&backend);
    train.device = &device;
    train.nccl_link = (struct nccl_link *)(void *)&something;
    train_nccl_close(&train);
    CHECK_STR(order, "captures link");
    CHECK(train.nccl_link == NULL);
    net_free(&train.net);
}

TEST_MAIN
