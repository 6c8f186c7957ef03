/* kernels/batch_norm.h on a device: the whole chain forward and back, each kernel on what the references made
 * before it. */
#include "kernels/batch_norm.h"

#include "tests/gpu/mirror.h"

struct norm_case {
    struct kernel_norm norm;
    bool has_residual, has_skip, has_mask;
    struct mirror x, residual, y, mask, dy, dx, dskip;
    struct mirror gamma, beta, running_mean, running_var, stats, sums, scratch, counters;
    struct mirror back, all, dgamma, dbeta, coefs;
};

static void case_new(struct norm_case *c)
{
    const struct kernel_norm *norm = &c->norm;
    const size_t count = norm->rows * norm->channels, channels = norm->channels;
    const size_t bytes = type_bytes(norm->type), param_bytes = type_bytes(norm->param_type);

    c->x = mirror_random(norm->type, count, 0, 30.0F);
    c->residual = mirror_random(norm->type, count, 0, 2.0F);
    c->dy = mirror_random(norm->type, count, 0, 3.0F);
    c->y = mirror_new(count * bytes, 0);
    c->dx = mirror_new(count * bytes, 0);
    c->dskip = mirror_new(count * bytes, 0);
    c->mask = mirror_new(kernel_norm_mask_bytes(norm), 0);
    c->gamma = mirror_random(norm->param_type, channels, 0, 2.0F);
    c->beta = mirror_random(norm->param_type, channels, 0, 1.0F);
    c->running_mean = mirror_random(KERNEL_F32, channels, 0, 1.0F);
    c->running_var = mirror_random(KERNEL_F32, channels, 0, 1.0F);
    for (size_t i = 0; i < channels; i++)
        ((float *)c->running_var.host)[i] += 1.5F;
    mirror_upload(&c->running_var);
    c->stats = mirror_new(KERNEL_NORM_STATS * channels * 4, 0);
    c->sums = mirror_new(kernel_norm_sum_count(norm->channels) * 8, 0);
    c->back = mirror_new(kernel_norm_sum_count(norm->channels) * 8, 0);
    c->all = mirror_new(kernel_norm_sum_count(norm->channels) * 8, 0);
    c->scratch = mirror_new(kernel_columns_bytes(norm->type, norm->rows, norm->channels, 2), 0);
    c->counters = mirror_zeros(KERNEL_COLUMNS_COUNTERS * sizeof(uint32_t));
    c->dgamma = mirror_new(channels * param_bytes, 0);
    c->dbeta = mirror_new(channels * param_bytes, 0);
    c->coefs = mirror_new(KERNEL_NORM_COEFS * channels * 4, 0);
}

static void case_free(struct norm_case *c)
{
    struct mirror *const all[] = {&c->x,      &c->residual,     &c->y,           &c->mask,
                                  &c->dy,     &c->dx,           &c->dskip,       &c->gamma,
                                  &c->beta,   &c->running_mean, &c->running_var, &c->stats,
                                  &c->sums,   &c->scratch,      &c->back,        &c->all,
                                  &c->dgamma, &c->dbeta,        &c->coefs,       &c->counters};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        mirror_free(all[i]);
}

/* Each begins with what mirror_new or the reference made of the running statistics. */
static void statistics(struct norm_case *c)
{
    const struct kernel_norm *norm = &c->norm;
    struct mirror mean = mirror_of(c->running_mean.host, c->running_mean.byte_count);
    struct mirror var = mirror_of(c->running_var.host, c->running_var.byte_count);

    kernel_norm_sums_ref(norm, c->x.host, c->sums.host);
    RUN(norm_sums, norm, c->x.device, c->sums.device, c->scratch.device, c->counters.device);
    mirror_compare(&c->sums, "sums");
    kernel_norm_finish_ref(norm, c->sums.host, c->gamma.host, c->beta.host, c->running_mean.host,
                           c->running_var.host, c->stats.host);
    RUN(norm_finish, norm, c->sums.device, c->gamma.device, c->beta.device, c->running_mean.device,
        c->running_var.device, c->stats.device);
    mirror_compare(&c->stats, "stats");
    mirror_compare(&c->running_mean, "running mean");
    mirror_compare(&c->running_var, "running variance");
    kernel_norm_statistics_ref(norm, c->x.host, c->gamma.host, c->beta.host, mean.host, var.host,
                               c->stats.host, c->sums.host);
    RUN(norm_statistics, norm, c->x.device, c->gamma.device, c->beta.device, mean.device,
        var.device, c->stats.device, c->sums.device, c->scratch.device, c->counters.device);
    mirror_compare(&c->stats, "stats as one");
    mirror_compare(&c->sums, "sums as one");
    mirror_compare(&mean, "running mean as one");
    mirror_compare(&var, "running variance as one");
    mirror_compare(&c->counters, "counters");
    mirror_free(&mean);
    mirror_free(&var);
}

static void forward(struct norm_case *c)
{
    const struct kernel_norm *norm = &c->norm;
    void *host_residual = c->has_residual ? c->residual.host : NULL;
    void *device_residual = c->has_residual ? c->residual.device : NULL;

    kernel_norm_running_ref(norm, c->gamma.host, c->beta.host, c->running_mean.host,
                            c->running_var.host, c->stats.host);
    RUN(norm_running, norm, c->gamma.device, c->beta.device, c->running_mean.device,
        c->running_var.device, c->stats.device);
    mirror_compare(&c->stats, "stats of evaluation");
    statistics(c);
    kernel_norm_apply_ref(norm, c->x.host, c->stats.host, host_residual, c->y.host, c->mask.host);
    RUN(norm_apply, norm, c->x.device, c->stats.device, device_residual, c->y.device,
        c->mask.device);
    mirror_compare(&c->y, "y");
    mirror_compare(&c->mask, "mask");
    mirror_compare(&c->residual, "residual");
}

static void gradients(struct norm_case *c)
{
    const struct kernel_norm *norm = &c->norm;
    void *host_mask = c->has_mask ? c->mask.host : NULL;
    void *device_mask = c->has_mask ? c->mask.device : NULL;
    const size_t sums = kernel_norm_sum_count(norm->channels);

    kernel_norm_gradients_ref(norm, c->x.host, c->dy.host, host_mask, c->stats.host, c->dgamma.host,
                              c->dbeta.host, c->coefs.host, c->back.host);
    RUN(norm_gradients, norm, c->x.device, c->dy.device, device_mask, c->stats.device,
        c->dgamma.device, c->dbeta.device, c->coefs.device, c->back.device, c->scratch.device,
        c->counters.device);
    mirror_compare(&c->back, "sums of backward as one");
    mirror_compare(&c->dgamma, "dgamma as one");
    mirror_compare(&c->dbeta, "dbeta as one");
    mirror_compare(&c->coefs, "coefs as one");
    kernel_norm_backward_sums_ref(norm, c->x.host, c->dy.host, host_mask, c->stats.host,
                                  c->back.host);
    RUN(norm_backward_sums, norm, c->x.device, c->dy.device, device_mask, c->stats.device,
        c->back.device, c->scratch.device, c->counters.device);
    mirror_compare(&c->back, "sums of backward");
    mirror_compare(&c->counters, "counters of backward");
    for (size_t i = 0; i < sums; i++) /* as if another rank had the same */
        ((double *)c->all.host)[i] = 2.0 * ((double *)c->back.host)[i];
    mirror_upload(&c->all);
    kernel_norm_backward_finish_ref(norm, c->back.host, c->all.host, c->stats.host, c->dgamma.host,
                                    c->dbeta.host, c->coefs.host);
    RUN(norm_backward_finish, norm, c->back.device, c->all.device, c->stats.device,
        c->dgamma.device, c->dbeta.device, c->coefs.device);
    mirror_compare(&c->dgamma, "dgamma");
    mirror_compare(&c->dbeta, "dbeta");
    mirror_compare(&c->coefs, "coefs");
}

static void backward(struct norm_case *c)
{
    const struct kernel_norm *norm = &c->norm;

    gradients(c);
    kernel_norm_backward_apply_ref(norm, c->x.host, c->dy.host, c->has_mask ? c->mask.host : NULL,
                                   c->stats.host, c->coefs.host, c->dx.host,
                                   c->has_skip ? c->dskip.host : NULL);
    RUN(norm_backward_apply, norm, c->x.device, c->dy.device, c->has_mask ? c->mask.device : NULL,
        c->stats.device, c->coefs.device, c->dx.device, c->has_skip ? c->dskip.device : NULL);
    mirror_compare(&c->dx, "dx");
    mirror_compare(&c->dskip, "dskip");
    mirror_compare(&c->x, "x");
    mirror_compare(&c->dy, "dy");
}

TEST(norm_chain)
{
    /* one block to many; one slice of channels to 32; slices of one and of two cache lines. 30,000 rows make
     * 59 blocks, whose sums the last block adds in two rounds; how it does so depends on the type alone,
     * so they have the first three kinds. */
    static const uint32_t shapes[][2] = {{1, 4},     {2, 64},   {31, 12},   {300, 8},   {513, 72},
                                         {4000, 16}, {9, 2048}, {30000, 8}, {600, 1024}};

    mirror_need_device();
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (uint32_t kind = 0; kind < (shapes[s][0] > 20000 ? 3 : 12); kind++) {
            struct norm_case c = {.norm = {.rows = shapes[s][0],
                                           .channels = shapes[s][1],
                                           .type = (enum kernel_type)(kind % 3),
                                           .param_type = (enum kernel_type)draw_below(3),
                                           .stats_type = (enum kernel_type)draw_below(3),
                                           .eps = 1e-5F,
                                           .momentum = 0.1F,
                                           .relu = kind / 3 % 2 == 1},
                                  .has_residual = kind >= 6,
                                  .has_skip = draw_below(2)};

            c.has_mask = c.norm.relu;
            case_new(&c);
            forward(&c);
            backward(&c);
            case_free(&c);
        }
}

/* -- with the max pool after it -- */

static void compare_norm_pool(const struct kernel_norm *norm, const struct kernel_pool *pool)
{
    const size_t rows = norm->rows, channels = norm->channels;
    const size_t out = (size_t)pool->images * pool->out_height * pool->out_width * channels;
    struct mirror x = mirror_random(norm->type, rows * channels, 0, 2.0F);
    struct mirror dy = mirror_random(norm->type, out, 0, 3.0F);
    struct mirror y = mirror_new(out * type_bytes(norm->type), 0), places = mirror_new(out, 0);
    struct mirror kept = mirror_new(out * type_bytes(norm->type), 0);
    struct mirror dgamma = mirror_new(channels * 4, 0), dbeta = mirror_new(channels * 4, 0);
    struct mirror dx = mirror_new(rows * channels * type_bytes(norm->type), 0);
    struct mirror stats = mirror_random(KERNEL_F32, KERNEL_NORM_STATS * channels, 0, 1.0F);
    struct mirror coefs = mirror_random(KERNEL_F32, KERNEL_NORM_COEFS * channels, 0, 1.0F);
    struct mirror sums = mirror_new(kernel_norm_sum_count(norm->channels) * 8, 0);
    struct mirror scratch =
        mirror_new(kernel_columns_bytes(norm->type, rows, norm->channels, 2), 0);
    struct mirror counters = mirror_zeros(KERNEL_COLUMNS_COUNTERS * sizeof(uint32_t));
    struct mirror *const all[] = {&x,     &dy,   &y,       &places,   &kept,   &dx,   &stats,
                                  &coefs, &sums, &scratch, &counters, &dgamma, &dbeta};

    kernel_norm_pool_ref(norm, pool, x.host, stats.host, y.host, places.host, kept.host);
    RUN(norm_pool, norm, pool, x.device, stats.device, y.device, places.device, kept.device);
    mirror_compare(&y, "y of norm and pool");
    mirror_compare(&places, "places of norm and pool");
    mirror_compare(&kept, "kept of norm and pool");
    RUN(norm_pool, norm, pool, x.device, stats.device, y.device, NULL, NULL);
    mirror_compare(&y, "y in evaluation");
    kernel_norm_pool_backward_sums_ref(norm, pool, kept.host, dy.host, places.host, stats.host,
                                       sums.host);
    RUN(norm_pool_backward_sums, norm, pool, kept.device, dy.device, places.device, stats.device,
        sums.device, scratch.device, counters.device);
    mirror_compare(&sums, "sums through the pool");
    kernel_norm_pool_gradients_ref(norm, pool, kept.host, dy.host, places.host, stats.host,
                                   dgamma.host, dbeta.host, coefs.host, sums.host);
    RUN(norm_pool_gradients, norm, pool, kept.device, dy.device, places.device, stats.device,
        dgamma.device, dbeta.device, coefs.device, sums.device, scratch.device, counters.device);
    mirror_compare(&sums, "sums through the pool as one");
    mirror_compare(&dgamma, "dgamma through the pool");
    mirror_compare(&dbeta, "dbeta through the pool");
    mirror_compare(&coefs, "coefs through the pool");
    mirror_compare(&counters, "counters");
    kernel_norm_pool_backward_apply_ref(norm, pool, x.host, dy.host, places.host, stats.host,
                                        coefs.host, dx.host);
    RUN(norm_pool_backward_apply, norm, pool, x.device, dy.device, places.device, stats.device,
        coefs.device, dx.device);
    mirror_compare(&dx, "dx through the pool");
    mirror_compare_guards(&scratch, "scratch");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        mirror_free(all[i]);
}

TEST(norm_and_pool_as_one)
{
    static const struct {
        uint32_t images, height, width, channels, kernel, stride, pad;
    } shapes[] = {{3, 14, 12, 64, 3, 2, 1}, /* ResNet's stem */
                  {2, 13, 11, 64, 3, 2, 1}, {3, 1, 1, 40, 3, 2, 1}, {2, 8, 6, 16, 2, 2, 0},
                  {1, 7, 9, 12, 5, 3, 2},   {2, 5, 5, 8, 1, 1, 0},  {1, 40, 40, 72, 3, 1, 1}};

    mirror_need_device();
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (uint32_t kind = 0; kind < 6; kind++) {
            const struct kernel_pool pool = {
                .images = shapes[s].images,
                .height = shapes[s].height,
                .width = shapes[s].width,
                .channels = shapes[s].channels,
                .kernel = shapes[s].kernel,
                .stride = shapes[s].stride,
                .pad = shapes[s].pad,
                .out_height =
                    (shapes[s].height + 2 * shapes[s].pad - shapes[s].kernel) / shapes[s].stride +
                    1,
                .out_width =
                    (shapes[s].width + 2 * shapes[s].pad - shapes[s].kernel) / shapes[s].stride + 1,
                .type = (enum kernel_type)(kind % 3)};
            const struct kernel_norm norm = {.rows = (size_t)pool.images * pool.height * pool.width,
                                             .channels = pool.channels,
                                             .type = pool.type,
                                             .relu = kind >= 3};

            compare_norm_pool(&norm, &pool);
        }
}
