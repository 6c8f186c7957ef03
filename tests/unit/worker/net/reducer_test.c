/* How a net drives its reducer: the contract of worker/net/reducer.h, from the reducer's side. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/worker/net/batch.h"
#include "worker/net/backend.h"
#include "worker/net/net.h"
#include "worker/net/state.h"

#define BATCH 4
#define SIDE 28

/* What was called, a letter a call: b, a bucket's digit, f. And what shall fail, by its letter. */
struct calls {
    char text[64];
    size_t count;
    char fails;
    struct net *net; /* NULL: gradients stay; else they are doubled */
};

static enum status log_call(struct calls *calls, char letter, struct err *err)
{
    CHECK(calls->count + 1 < sizeof calls->text);
    calls->text[calls->count++] = letter;
    if (calls->fails == letter)
        return err_set(err, STATUS_PEER_LOST, 0, "%c fails on purpose", letter);
    return STATUS_OK;
}

static enum status begin(void *context, struct err *err)
{
    return log_call(context, 'b', err);
}

static enum status bucket_ready(void *context, uint32_t index, struct err *err)
{
    struct calls *calls = context;
    struct net_view view;

    CHECK(index < 10);
    if (calls->net != NULL) {
        CHECK_EQ(net_bucket_open(calls->net, index, &view, NULL), STATUS_OK);
        for (size_t i = 0; i < view.count; i++)
            view.values[i] *= 2.0F;
        CHECK_EQ(net_bucket_close(calls->net, index, &view, NULL), STATUS_OK);
    }
    return log_call(calls, (char)('0' + index), err);
}

static enum status finish(void *context, struct err *err)
{
    return log_call(context, 'f', err);
}

static struct reducer reducer_of(struct calls *calls, float prescale)
{
    return (struct reducer){.context = calls,
                            .begin = begin,
                            .bucket_ready = bucket_ready,
                            .finish = finish,
                            .prescale = prescale};
}

static struct net *make_net(const struct backend *backend)
{
    const struct net_options options = {.batch_max = BATCH,
                                        .bucket_first_bytes = 4096,
                                        .bucket_bytes = 8192,
                                        .accumulate = true,
                                        .backend = backend};
    struct net *net = batch_net(&options, SIDE, 10);

    CHECK_EQ(net_bucket_count(net), 3);
    return net;
}

static void forward(struct net *net)
{
    static float images[BATCH * SIDE * SIDE];
    int64_t labels[BATCH];

    batch_draw(5, 0.0F, BATCH, SIDE, images, labels);
    CHECK_EQ(net_forward(net, images, labels, BATCH, true, NULL, NULL), STATUS_OK);
}

/* Forward of the batch, then backward as `reduces` says. */
static enum status step(struct net *net, float scale, bool reduces, struct err *err)
{
    forward(net);
    return reduces ? net_backward_reduce(net, scale, err) : net_backward(net, scale, err);
}

/* Of fc.bias, 10 classes. */
static void read_bias(struct net *net, float bias[10])
{
    for (uint32_t i = 0; i < net_tensor_count(net); i++)
        if (strcmp(net_tensor(net, i)->name, "fc.bias") == 0) {
            CHECK_EQ(net_grad_read(net, i, bias, NULL), STATUS_OK);
            return;
        }
    FAIL("no fc.bias");
}

/* A net with a reducer, and the gradients of its step before it had one. */
struct reduced {
    struct net *net;
    struct calls calls;
    float plain[10];
};

static void begin_reduced(struct reduced *reduced, float prescale)
{
    struct reducer reducer;

    reduced->net = make_net(NULL);
    reduced->calls = (struct calls){.net = reduced->net};
    reducer = reducer_of(&reduced->calls, prescale);
    CHECK_EQ(step(reduced->net, 1.0F, false, NULL), STATUS_OK);
    read_bias(reduced->net, reduced->plain);
    net_set_reducer(reduced->net, &reducer);
}

/* The last step's gradients are `factor` times the plain ones. */
static void end_reduced(struct reduced *reduced, float factor)
{
    float got[10];

    read_bias(reduced->net, got);
    for (int i = 0; i < 10; i++)
        CHECK_NEAR(got[i], factor * reduced->plain[i], 1e-6);
    net_free(&reduced->net);
}

TEST(each_bucket_once_in_order_between_begin_and_finish)
{
    struct net *net = make_net(NULL);
    struct calls calls = {.count = 0};
    const struct reducer reducer = reducer_of(&calls, 1.0F);

    net_set_reducer(net, &reducer);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(step(net, 1.0F, true, NULL), STATUS_OK);
    CHECK_STR(calls.text, "b012fb012f");
    net_set_reducer(net, NULL);
    CHECK_EQ(step(net, 1.0F, true, NULL), STATUS_OK);
    CHECK_STR(calls.text, "b012fb012f");
    net_free(&net);
}

/* Inner batches are kept, not reduced; the last one is reduced with all that was kept, and each of
 * them was multiplied by the prescale. */
TEST(an_accumulation_is_reduced_once)
{
    struct reduced reduced;

    begin_reduced(&reduced, 0.25F);
    for (int inner = 0; inner < 2; inner++) {
        CHECK_EQ(step(reduced.net, 0.5F, false, NULL), STATUS_OK);
        net_grads_keep(reduced.net);
    }
    CHECK_STR(reduced.calls.text, "");
    net_grads_join(reduced.net);
    CHECK_EQ(step(reduced.net, 2.0F, true, NULL), STATUS_OK);
    CHECK_STR(reduced.calls.text, "b012f");
    end_reduced(&reduced, 2.0F * 0.25F * (0.5F + 0.5F + 2.0F));
}

/* Memory of somebody else for gradients, full of noise at first. */
static int blocks, refusals;

static void *make_memory(void *context, size_t bytes)
{
    void *memory = refusals > 0 ? NULL : aligned_alloc(256, (bytes + 255) / 256 * 256);

    CHECK(context == &blocks);
    if (memory == NULL)
        return NULL;
    blocks++;
    return memset(memory, 0x7b, bytes);
}

static void give_back(void *context, void *memory)
{
    CHECK(context == &blocks && memory != NULL);
    blocks--;
    free(memory);
}

TEST(gradients_in_memory_of_somebody_else)
{
    const struct net_memory memory = {&blocks, make_memory, give_back};
    const struct net_options options = {.batch_max = BATCH, .grad_memory = &memory};

    for (refusals = 0; refusals < 2; refusals++) {
        struct net *net = batch_net(&options, SIDE, 10), *plain = make_net(NULL);
        float got[10], expected[10];
        unsigned char *arena;
        void *at;
        size_t bytes;

        CHECK_EQ(blocks, refusals == 0 ? 1 : 0);
        net_grad_arena(net, &at, &bytes);
        arena = at;
        for (size_t i = 0; i < bytes; i++)
            CHECK_EQ(arena[i], 0);
        CHECK_EQ(step(net, 1.0F, false, NULL), STATUS_OK);
        CHECK_EQ(step(plain, 1.0F, false, NULL), STATUS_OK);
        read_bias(net, got);
        read_bias(plain, expected);
        CHECK_BYTES(got, expected, sizeof got);
        net_free(&plain);
        net_free(&net);
        CHECK_EQ(blocks, 0);
    }
}

TEST(without_a_prescale_gradients_come_as_they_are)
{
    struct reduced reduced;

    begin_reduced(&reduced, 1.0F);
    CHECK_EQ(step(reduced.net, 1.0F, true, NULL), STATUS_OK);
    end_reduced(&reduced, 2.0F);
}

/* After a failure nothing but finish is called, and the first failure is returned. */
TEST(a_failure_ends_the_step_and_finish_comes_all_the_same)
{
    static const struct {
        char fails;
        const char *calls;
    } cases[] = {{'b', "b"}, {'0', "b0f"}, {'1', "b01f"}, {'f', "b012f"}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct net *net = make_net(NULL);
        struct calls calls = {.fails = cases[i].fails};
        const struct reducer reducer = reducer_of(&calls, 1.0F);
        struct err err = {.text = ""};
        char want[32];

        (void)snprintf(want, sizeof want, "%c fails on purpose", cases[i].fails);
        net_set_reducer(net, &reducer);
        CHECK_EQ(step(net, 1.0F, true, &err), STATUS_PEER_LOST);
        CHECK_STR(err.text, want);
        CHECK_STR(calls.text, cases[i].calls);
        net_free(&net);
    }
}

static enum status no_backward(void *state, uint32_t layer, float grad_scale, struct err *err)
{
    if (layer == 1)
        return err_set(err, STATUS_LIBRARY, 0, "backward fails on purpose");
    return backend_cpu.layer_backward(state, layer, grad_scale, err);
}

static uint32_t ends;

static enum status count_end(void *state, struct err *err)
{
    (void)state;
    (void)err;
    ends++;
    return STATUS_OK;
}

/* The backend ends backward where all went well, with and without a reducer. */
TEST(the_backend_fails_or_ends_backward)
{
    struct backend backend = backend_cpu;
    struct calls calls = {.count = 0};
    const struct reducer reducer = reducer_of(&calls, 1.0F);
    struct err err = {.text = ""};
    struct net *net;

    backend.backward_end = count_end;
    net = make_net(&backend);
    CHECK_EQ(step(net, 1.0F, false, NULL), STATUS_OK);
    CHECK_EQ(ends, 1);
    net_set_reducer(net, &reducer);
    CHECK_EQ(step(net, 1.0F, true, NULL), STATUS_OK);
    CHECK_EQ(ends, 2);
    calls.fails = 'f';
    CHECK_EQ(step(net, 1.0F, true, NULL), STATUS_PEER_LOST);
    CHECK_EQ(ends, 2);
    net_free(&net);

    backend.layer_backward = no_backward;
    calls = (struct calls){.count = 0};
    net = make_net(&backend);
    net_set_reducer(net, &reducer);
    CHECK_EQ(step(net, 1.0F, true, &err), STATUS_LIBRARY);
    CHECK_STR(err.text, "backward fails on purpose");
    CHECK_STR(calls.text, "b01f");
    CHECK_EQ(ends, 2);
    net_free(&net);
}

TEST_MAIN
