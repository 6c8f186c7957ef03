/* --pretrained's reader: types, names, shapes; and the initialisation of residual blocks. */
#include "worker/model/pretrained.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/half.h"
#include "tests/lib/test.h"
#include "worker/model/init.h"
#include "worker/model/model.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/net/state.h"

#define TENSORS 14 /* of the ConvNet */

struct subject {
    struct graph *graph;
    struct net *net;
};

static void open_subject(struct subject *s, const char *arch, const struct model_shape *shape)
{
    const struct net_options options = {.batch_max = 1, .evaluate_only = true};
    struct rng rng;

    CHECK_EQ(model_build(&s->graph, arch, shape, NULL), STATUS_OK);
    CHECK_EQ(net_new(&s->net, s->graph, &options, NULL), STATUS_OK);
    rng_seed(&rng, 0);
    CHECK_EQ(init_torch_default(s->net, s->graph, &rng, NULL), STATUS_OK);
}

static void close_subject(struct subject *s)
{
    net_free(&s->net);
    graph_free(&s->graph);
}

/* A file with the ConvNet's tensors for ten classes, all of `value`, which every type has. */
#define VALUES 16384                  /* of the largest */
static float file_values[2 * VALUES]; /* or doubles */

struct file {
    struct safetensors_tensor tensors[TENSORS + 4];
    char names[TENSORS + 4][GRAPH_NAME_MAX + 16];
    size_t count;
    char path[512];
};

static void rename_tensor(struct file *file, size_t index, const char *name)
{
    (void)snprintf(file->names[index], sizeof file->names[index], "%s", name);
    file->tensors[index].name = file->names[index];
}

static void begin_file(struct file *file, enum safetensors_type type, float value)
{
    const struct model_shape shape = {1, 28, 28, 10};
    struct graph *graph = NULL;
    char *values = (char *)file_values;

    *file = (struct file){.count = 0};
    for (size_t i = 0; i < VALUES; i++) {
        const uint16_t half =
            type == SAFETENSORS_F16 ? half_f16_from(value) : half_bf16_from(value);

        if (type == SAFETENSORS_F64)
            memcpy(values + i * sizeof(double), &(double){(double)value}, sizeof(double));
        else if (type == SAFETENSORS_F32)
            memcpy(values + i * sizeof value, &value, sizeof value);
        else
            memcpy(values + i * sizeof half, &half, sizeof half);
    }
    CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
    CHECK_EQ(graph->tensor_count, TENSORS);
    for (uint32_t i = 0; i < TENSORS; i++) {
        struct safetensors_tensor *to = &file->tensors[file->count++];

        CHECK(graph->tensors[i].count <= VALUES);
        *to = (struct safetensors_tensor){
            .type = type, .dim_count = graph->tensors[i].dim_count, .values = file_values};
        for (uint32_t k = 0; k < to->dim_count; k++)
            to->dims[k] = graph->tensors[i].dims[k];
        rename_tensor(file, i, graph->tensors[i].name);
    }
    graph_free(&graph);
    (void)snprintf(file->path, sizeof file->path, "%s/w", test_dir());
}

static void add_scalar(struct file *file, const char *name)
{
    file->tensors[file->count] =
        (struct safetensors_tensor){.type = SAFETENSORS_I64, .values = file_values};
    rename_tensor(file, file->count++, name);
}

static void end_file(struct file *file)
{
    const int fd = open(file->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd >= 0);
    CHECK_EQ(safetensors_write(fd, file->tensors, file->count, NULL, 0, NULL), STATUS_OK);
    CHECK_EQ(close(fd), 0);
}

static void check_values(struct subject *s, uint32_t from, uint32_t to, float value)
{
    float *values = malloc(65536 * sizeof *values);

    CHECK(values != NULL);
    for (uint32_t i = from; i < to; i++) {
        CHECK_EQ(net_tensor_read(s->net, i, values, NULL), STATUS_OK);
        for (size_t k = 0; k < net_tensor(s->net, i)->count; k++)
            if (values[k] != value)
                FAIL("%s has %g, not %g", net_tensor(s->net, i)->name, (double)values[k],
                     (double)value);
    }
    free(values);
}

TEST(four_types_are_read)
{
    static const enum safetensors_type types[] = {SAFETENSORS_F32, SAFETENSORS_F16,
                                                  SAFETENSORS_BF16, SAFETENSORS_F64};
    const struct model_shape shape = {1, 28, 28, 10};

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const float value = 1.5F + (float)i;
        struct subject s = {0};
        struct file file;
        struct err err = {.text = ""};

        begin_file(&file, types[i], value);
        add_scalar(&file, "layer1.1.num_batches_tracked");
        add_scalar(&file, "optimizer.momentum.fc.bias");
        end_file(&file);
        open_subject(&s, "convnet", &shape);
        if (pretrained_load(s.net, s.graph, file.path, false, NULL, &err) != STATUS_OK)
            FAIL("%s", err.text);
        check_values(&s, 0, TENSORS, value);
        close_subject(&s);
    }
}

/* As torch.save's: DataParallel's names, torch.compile's, and those of a model inside of another one. */
TEST(prefixes_of_all_names_are_taken_off)
{
    static const char *const prefixes[] = {"module.", "_orig_mod.module.", "model.",
                                           "module.model."};
    const struct model_shape shape = {1, 28, 28, 10};

    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        struct subject s = {0};
        struct file file;
        struct err err = {.text = ""}, taken = {.text = ""};

        begin_file(&file, SAFETENSORS_F32, 2);
        for (size_t k = 0; k < file.count; k++) {
            char name[GRAPH_NAME_MAX + 16];

            (void)snprintf(name, sizeof name, "%s%.60s", prefixes[i], file.names[k]);
            rename_tensor(&file, k, name);
        }
        end_file(&file);
        open_subject(&s, "convnet", &shape);
        if (pretrained_load(s.net, s.graph, file.path, false, &taken, &err) != STATUS_OK)
            FAIL("%s", err.text);
        CHECK(strncmp(taken.text, "names without ", 14) == 0);
        check_values(&s, 0, TENSORS, 2);
        close_subject(&s);
    }
}

/* Each tells what is wrong, and the net is as before. */
static void expect(const struct file *file, uint32_t classes, const char *words)
{
    const struct model_shape shape = {1, 28, 28, classes};
    struct subject s = {0};
    struct err err = {.text = ""};
    char text[600];

    open_subject(&s, "convnet", &shape);
    CHECK(pretrained_load(s.net, s.graph, file->path, false, NULL, &err) != STATUS_OK);
    (void)snprintf(text, sizeof text, "--pretrained %.60s%s", file->path, words);
    if (strstr(words, "--new-classifier") != NULL && strstr(words, "classes") != NULL)
        (void)snprintf(text, sizeof text, "--pretrained %.50s%s", file->path, words);
    CHECK_STR(err.text, text);
    check_values(&s, 2, 3, 1.0F); /* a scale of a norm */
    close_subject(&s);
}

TEST(names_that_differ)
{
    struct file file;

    begin_file(&file, SAFETENSORS_F32, 2);
    rename_tensor(&file, 0, "conv.weight");
    rename_tensor(&file, 1, "conv.bias");
    end_file(&file);
    expect(&file, 10, " is of another model: the one of --arch has no conv.bias, conv.weight");
    begin_file(&file, SAFETENSORS_F32, 2);
    for (size_t i = 0; i < TENSORS - 2; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "optimizer.%zu", i);
        rename_tensor(&file, i, name);
    }
    end_file(&file);
    expect(&file, 10,
           " has no layer1.0.weight, layer1.0.bias, layer1.1.weight, layer1.1.bias and 8 more");
    begin_file(&file, SAFETENSORS_F32, 2);
    rename_tensor(&file, 12, "optimizer.x");
    rename_tensor(&file, 13, "optimizer.y");
    end_file(&file);
    expect(&file, 10,
           " has no fc.weight, fc.bias; --new-classifier leaves that layer as it is drawn");
}

TEST(shapes_and_types_that_differ)
{
    struct file file;

    begin_file(&file, SAFETENSORS_F32, 2);
    end_file(&file);
    expect(&file, 12,
           ": its fc.weight is for 10 classes, here are 12: --new-classifier leaves that layer as "
           "it is drawn");
    begin_file(&file, SAFETENSORS_F32, 2);
    file.tensors[0].dims[2] = 3;
    end_file(&file);
    expect(&file, 10, ": its layer1.0.weight is [16, 1, 3, 5], the model's [16, 1, 5, 5]");
    begin_file(&file, SAFETENSORS_F32, 2);
    file.tensors[3].type = SAFETENSORS_I64;
    end_file(&file);
    expect(&file, 10, ": the type of layer1.1.bias is not fp32, fp16, bf16 or fp64");
}

TEST(values_that_no_weight_has)
{
    const struct model_shape shape = {1, 28, 28, 10};
    struct subject s = {0};
    struct file file;
    struct err err = {.text = ""};

    begin_file(&file, SAFETENSORS_BF16, INFINITY);
    end_file(&file);
    expect(&file, 10, ": layer1.0.weight has inf at element 0: it must be a finite number");
    begin_file(&file, SAFETENSORS_F32, -2);
    end_file(&file);
    open_subject(&s, "convnet", &shape);
    CHECK_EQ(pretrained_load(s.net, s.graph, file.path, false, NULL, &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "layer1.1.running_var has -2 at element 0") != NULL);
    close_subject(&s);
}

TEST(a_new_classifier_stays_as_drawn)
{
    const struct model_shape shape = {1, 28, 28, 12};
    struct subject s = {0}, drawn = {0};
    float have[12], want[12];
    struct file file;

    begin_file(&file, SAFETENSORS_F32, 2);
    end_file(&file);
    open_subject(&s, "convnet", &shape);
    open_subject(&drawn, "convnet", &shape);
    CHECK_EQ(pretrained_load(s.net, s.graph, file.path, true, NULL, NULL), STATUS_OK);
    check_values(&s, 0, 12, 2);
    CHECK_EQ(net_tensor_read(s.net, 13, have, NULL), STATUS_OK);
    CHECK_EQ(net_tensor_read(drawn.net, 13, want, NULL), STATUS_OK);
    CHECK_BYTES(have, want, sizeof have);
    close_subject(&s);
    close_subject(&drawn);
}

TEST(what_is_no_safetensors_file)
{
    const struct model_shape shape = {1, 28, 28, 10};
    struct subject s = {0};
    struct err err = {.text = ""};

    open_subject(&s, "convnet", &shape);
    CHECK_EQ(pretrained_load(s.net, s.graph, "/nowhere/x", false, NULL, &err), STATUS_NOT_FOUND);
    CHECK(strstr(err.text, "there is no file /nowhere/x") != NULL);
    CHECK_EQ(pretrained_load(s.net, s.graph, test_source("LICENSE"), false, NULL, &err),
             STATUS_BAD_INPUT);
    close_subject(&s);
}

/* torchvision's zero_init_residual: bn2 of a basic block, bn3 of a bottleneck, no other. */
TEST(residual_blocks_begin_as_identity)
{
    static const struct {
        const char *arch, *last;
        uint32_t count;
    } cases[] = {{"resnet18", "bn2.weight", 8}, {"resnet50", "bn3.weight", 16}};
    const struct model_shape shape = {3, 32, 32, 10};

    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct subject s = {0};
        uint32_t count = 0;

        open_subject(&s, cases[c].arch, &shape);
        CHECK_EQ(init_zero_residual(s.net, s.graph, &count, NULL), STATUS_OK);
        CHECK_EQ(count, cases[c].count);
        for (uint32_t i = 0; i < net_tensor_count(s.net); i++) {
            const struct graph_tensor *tensor = &s.graph->tensors[i];
            const bool is_scale = tensor->role == GRAPH_WEIGHT &&
                                  s.graph->layers[tensor->layer].op == GRAPH_BATCH_NORM;

            if (is_scale)
                check_values(&s, i, i + 1, strstr(tensor->name, cases[c].last) != NULL ? 0 : 1);
        }
        close_subject(&s);
    }
}

TEST_MAIN
