/* What plans say of their cache and of the device is in the log, once. */
#include <string.h>

#include "common/log.h"
#include "tests/lib/net_pair.h"
#include "tests/lib/test.h"
#include "tests/standin/cuda/standin.h"
#include "worker/backend/cuda/exec/backend.h"

static char logged[2048];

static void take_line(const char *bytes, size_t byte_count)
{
    const size_t at = strlen(logged);

    CHECK(at + byte_count < sizeof logged);
    memcpy(logged + at, bytes, byte_count);
    logged[at + byte_count] = '\0';
}

static uint32_t count(const char *words)
{
    uint32_t found = 0;

    for (const char *at = strstr(logged, words); at != NULL; at = strstr(at + 1, words))
        found++;
    return found;
}

TEST(notes_of_plans_are_logged_once)
{
    const struct model_shape shape = {1, 28, 28, 10};
    const struct net_options options = {.batch_max = 2, .backend = &backend_cuda};
    struct graph *graph = NULL;
    struct net *net = NULL;

    cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
    CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
    CHECK_EQ(net_new(&net, graph, &options, NULL), STATUS_OK);
    CHECK(standin_plan_options.note != NULL);
    log_use(take_line);
    standin_plan_options.note(standin_plan_options.note_user, "no memory to time plans with");
    standin_plan_options.note(standin_plan_options.note_user, "no memory to time plans with");
    standin_plan_options.note(standin_plan_options.note_user, "3 plans are damaged");
    log_use(NULL);
    CHECK_EQ(count("no memory to time plans with"), 1);
    CHECK_EQ(count("3 plans are damaged"), 1);
    net_free(&net);
    graph_free(&graph);
}

TEST_MAIN
