/* Nobody but the backend touches the backend's memory: everything that net, ddp and training do to
 * it runs here behind a fence (tests/lib/fenced.h) and must come out equal to the bit. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/fenced.h"
#include "tests/lib/test.h"
#include "tests/unit/comm/crew.h"
#include "worker/ddp.h"
#include "worker/init.h"
#include "worker/model.h"
#include "worker/net.h"
#include "worker/options.h"
#include "worker/train.h"

enum { BATCH = 4, SIDE = 28, STEPS = 4, WORLD = 2 };

static const struct optim sgd = {.lr = 0.05F, .momentum = 0.9F, .weight_decay = 1e-3F};

static struct amp amp_of(const char *level)
{
    const struct amp_request request = {.level = level};
    struct amp amp;

    CHECK_EQ(amp_resolve(&amp, &request, NULL), STATUS_OK);
    return amp;
}

static struct net *make_net(const struct backend *backend, const struct amp *amp, bool accumulate)
{
    const struct model_shape shape = {1, SIDE, SIDE, 10};
    const struct net_options options = {.batch_max = BATCH,
                                        .bucket_first_bytes = 4096,
                                        .bucket_bytes = 8192,
                                        .amp = amp,
                                        .accumulate = accumulate,
                                        .backend = backend};
    struct graph *graph = NULL;
    struct net *net = NULL;
    struct rng rng;

    rng_seed(&rng, 1);
    CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
    CHECK_EQ(net_new(&net, graph, &options, NULL), STATUS_OK);
    CHECK_EQ(init_torch_default(net, graph, &rng, NULL), STATUS_OK);
    graph_free(&graph);
    return net;
}

static void draw(uint32_t seed, float *images, int64_t *labels)
{
    struct rng rng;

    rng_seed(&rng, seed);
    rng_uniform_f32(&rng, 0.0F, 1.0F, images, (size_t)BATCH * SIDE * SIDE);
    for (int i = 0; i < BATCH; i++)
        labels[i] = (int64_t)(rng_u32(&rng) % 10);
}

static void forward(struct net *net, uint32_t seed)
{
    float images[BATCH * SIDE * SIDE];
    int64_t labels[BATCH];

    draw(seed, images, labels);
    CHECK_EQ(net_forward(net, images, labels, BATCH, true, NULL, NULL), STATUS_OK);
}

/* Everything that a step can do, clipping and accumulation included. */
static void one_step(struct net *net, uint32_t seed, bool accumulate)
{
    const struct net_clip clip = {.value = 0.5F, .norm = 0.7F};

    if (accumulate) {
        forward(net, seed + 100);
        CHECK_EQ(net_backward(net, 0.5F, NULL, NULL, NULL), STATUS_OK);
        net_grads_keep(net);
        net_grads_join(net);
    } else {
        net_step_whole(net);
    }
    forward(net, seed);
    CHECK_EQ(net_backward(net, 1.0F, NULL, NULL, NULL), STATUS_OK);
    net_clip(net, &clip);
    net_update(net, &sgd);
}

static void check_same(struct net *a, struct net *b)
{
    static float of_a[65536], of_b[65536];
    const struct scaler scaler_a = net_scaler(a), scaler_b = net_scaler(b);

    CHECK_BYTES(&scaler_a, &scaler_b, sizeof scaler_a);
    for (uint32_t i = 0; i < net_tensor_count(a); i++) {
        const struct net_tensor *tensor = net_tensor(a, i);

        CHECK(tensor->count <= sizeof of_a / sizeof of_a[0]);
        CHECK_EQ(net_tensor_read(a, i, of_a, NULL), STATUS_OK);
        CHECK_EQ(net_tensor_read(b, i, of_b, NULL), STATUS_OK);
        CHECK_BYTES(of_a, of_b, tensor->count * sizeof *of_a);
        if (!tensor->trainable)
            continue;
        CHECK_EQ(net_optim_read(a, OPTIM_MOMENTUM, i, of_a, NULL), STATUS_OK);
        CHECK_EQ(net_optim_read(b, OPTIM_MOMENTUM, i, of_b, NULL), STATUS_OK);
        CHECK_BYTES(of_a, of_b, tensor->count * sizeof *of_a);
        CHECK_EQ(net_grad_read(a, i, of_a, NULL), STATUS_OK);
        CHECK_EQ(net_grad_read(b, i, of_b, NULL), STATUS_OK);
        CHECK_BYTES(of_a, of_b, tensor->count * sizeof *of_a);
    }
}

static void read_inside(void)
{
    void *state = NULL;
    struct graph *graph = NULL;
    const struct model_shape shape = {1, SIDE, SIDE, 10};
    const struct net_options options = {.batch_max = BATCH};
    volatile float *memory;

    CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
    CHECK_EQ(backend_fenced.open(&state, graph, &options, NULL), STATUS_OK);
    memory = backend_fenced.memory_new(state, 64);
    CHECK(fenced_is_inside((const void *)(uintptr_t)memory));
    (void)signal(SIGSEGV, SIG_DFL);
    _exit(memory[0] == 0.0F ? 0 : 1);
}

TEST(the_fence_bites)
{
    pid_t pid = fork();
    int how = 0;

    CHECK(pid >= 0);
    if (pid == 0)
        read_inside();
    CHECK_EQ(waitpid(pid, &how, 0), pid);
    CHECK(WIFSIGNALED(how) || WEXITSTATUS(how) > 1); /* a sanitizer exits with its own code */
}

TEST(every_part_of_a_step)
{
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};

    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            const struct amp amp = amp_of(levels[l]);
            struct net *fenced = make_net(&backend_fenced, &amp, accumulate != 0);
            struct net *plain = make_net(&backend_cpu, &amp, accumulate != 0);

            for (uint32_t step = 0; step < STEPS; step++) {
                one_step(fenced, step, accumulate != 0);
                one_step(plain, step, accumulate != 0);
            }
            check_same(fenced, plain);
            CHECK(net_has_state(fenced, OPTIM_MOMENTUM));
            net_free(&fenced);
            net_free(&plain);
        }
}

TEST(outcomes_come_in_order_and_late)
{
    struct net *fenced = make_net(&backend_fenced, NULL, false);
    struct net *plain = make_net(&backend_cpu, NULL, false);
    struct net_outcome late, now;
    bool taken = true;

    CHECK_EQ(net_outcome_take(fenced, true, &late, &taken, NULL), STATUS_OK);
    CHECK(!taken);
    for (uint32_t step = 0; step < STEPS; step++) {
        struct net_outcome before = step > 0 ? now : (struct net_outcome){0};

        one_step(fenced, step, false);
        one_step(plain, step, false);
        CHECK_EQ(net_outcome_take(plain, false, &now, &taken, NULL), STATUS_OK);
        CHECK(taken && now.result.images == BATCH);
        CHECK_EQ(net_outcome_take(fenced, false, &late, &taken, NULL), STATUS_OK);
        CHECK_EQ(taken, step > 0);
        CHECK(!taken || late.result.loss_sum == before.result.loss_sum);
    }
    CHECK_EQ(net_outcome_take(fenced, true, &late, &taken, NULL), STATUS_OK);
    CHECK(taken && late.result.loss_sum == now.result.loss_sum);
    net_free(&fenced);
    net_free(&plain);
}

TEST(the_first_infinity_is_named)
{
    const struct amp amp = amp_of("O2");
    struct net *net = make_net(&backend_fenced, &amp, false);
    struct net_view view;
    char where[128];

    forward(net, 1);
    CHECK_EQ(net_backward(net, 1.0F, NULL, NULL, NULL), STATUS_OK);
    CHECK_EQ(net_bucket_open(net, 0, &view, NULL), STATUS_OK);
    CHECK(!fenced_is_inside(view.values));
    view.values[0] = 1e30F; /* no fp16: it becomes an infinity */
    CHECK_EQ(net_bucket_close(net, 0, &view, NULL), STATUS_OK);
    net_update(net, &sgd);
    CHECK(net_scaler(net).was_skipped);
    net_describe_nonfinite(net, where, sizeof where);
    CHECK_STR(where, "the gradient of fc.bias");
    net_free(&net);
}

/* -- ranks -- */

struct ranks {
    const struct backend *backend;
    const char *level;
    struct ddp_options options;
    struct net *nets[WORLD];
};

static int train_rank(struct crew_seat *seat)
{
    struct ranks *ranks = seat->user;
    const struct amp amp = amp_of(ranks->level);
    struct net *net = ranks->nets[seat->rank] = make_net(ranks->backend, &amp, false);
    struct err err = {.text = ""};
    struct ddp *ddp = NULL;
    enum status status =
        ddp_new(&ddp, seat->comm, net, seat->rank, seat->world, &ranks->options, &err);

    for (uint32_t step = 0; status == STATUS_OK && step < STEPS; step++) {
        status = ddp_forward_begin(ddp, &err);
        if (status != STATUS_OK)
            break;
        forward(net, step * WORLD + seat->rank);
        status = ddp_backward(ddp, 1.0F, &err);
        net_update(net, &sgd);
    }
    ddp_free(&ddp);
    (void)snprintf(seat->text, sizeof seat->text, "%s", err.text);
    return status == STATUS_OK ? 0 : 1;
}

static void run_ranks(struct ranks *ranks)
{
    static struct crew crew;

    crew_run(&crew, WORLD, train_rank, ranks);
    for (uint32_t i = 0; i < WORLD; i++)
        if (crew.seats[i].rc != 0)
            FAIL("rank %u: %s", i, crew.seats[i].text);
}

TEST(ranks_reduce_through_views)
{
    const struct ddp_options all[] = {
        {.broadcast_buffers = true},
        {.delay_allreduce = true},
        {.predivide = 2.0F, .allreduce_always_fp32 = true, .broadcast_buffers = true},
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int half = 0; half < 2; half++) {
            struct ranks fenced = {&backend_fenced, half ? "O2" : "O0", all[i], {NULL}};
            struct ranks plain = {&backend_cpu, half ? "O2" : "O0", all[i], {NULL}};

            run_ranks(&fenced);
            run_ranks(&plain);
            for (uint32_t rank = 0; rank < WORLD; rank++) {
                check_same(fenced.nets[rank], plain.nets[rank]);
                net_free(&fenced.nets[rank]);
                net_free(&plain.nets[rank]);
            }
        }
}

/* -- training -- */

struct run {
    const struct backend *backend;
    const char *dir, *name, *level, *max_steps;
};

/* ddp-worker's own loop on the built-in digits; the losses go to DIR/NAME. */
static void run_training(const struct run *run)
{
    char log[256], checkpoints[256];
    char *argv[] = {"ddp-worker",
                    "--dummy",
                    "--batch-size",
                    "8",
                    "--momentum",
                    "0.9",
                    "--lr",
                    "0.01",
                    "--max-steps",
                    (char *)(uintptr_t)run->max_steps,
                    "--opt-level",
                    (char *)(uintptr_t)run->level,
                    "--loss-log",
                    log,
                    "--resume",
                    "auto",
                    "--print-freq",
                    "1000",
                    "--image-size",
                    "28",
                    "--checkpoint-dir",
                    checkpoints};
    const struct agent_place place = {.world = 1, .local_world = 1, .generation = 1, .shim_fd = -1};
    const volatile bool stop = false;
    struct options options;
    struct train *train = NULL;
    struct err err = {.text = ""};

    (void)snprintf(log, sizeof log, "%s/%s", run->dir, run->name);
    (void)snprintf(checkpoints, sizeof checkpoints, "%s/%s.ck", run->dir, run->name);
    if (options_read(&options, sizeof argv / sizeof argv[0], argv, &err) != STATUS_OK)
        FAIL("%s", err.text);
    options.backend = run->backend;
    if (train_new(&train, &options, &place, NULL, &err) != STATUS_OK ||
        train_run(train, &stop, &err) != STATUS_OK)
        FAIL("%s", err.text);
    train_free(&train);
}

static void read_losses(const char *dir, const char *name, char *text, size_t byte_limit)
{
    char path[256];
    size_t count;
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    file = fopen(path, "re");
    CHECK(file != NULL);
    count = fread(text, 1, byte_limit - 1, file);
    text[count] = '\0';
    (void)fclose(file);
}

/* The lines come one step late, and none is missing or out of order, over a resume too. */
TEST(training_with_resume)
{
    static const char *const levels[] = {"O0", "O2"};
    const char *dir = test_dir();
    static char fenced[65536], plain[65536];

    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
        char names[2][16];

        (void)snprintf(names[0], sizeof names[0], "fenced-%s", levels[l]);
        (void)snprintf(names[1], sizeof names[1], "plain-%s", levels[l]);
        run_training(&(struct run){&backend_fenced, dir, names[0], levels[l], "4"});
        run_training(&(struct run){&backend_fenced, dir, names[0], levels[l], "9"});
        run_training(&(struct run){&backend_cpu, dir, names[1], levels[l], "9"});
        read_losses(dir, names[0], fenced, sizeof fenced);
        read_losses(dir, names[1], plain, sizeof plain);
        CHECK(strlen(plain) > 9 * 8);
        CHECK_STR(fenced, plain);
    }
    CHECK(fenced_whole_steps() >= 18);
}

TEST_MAIN
