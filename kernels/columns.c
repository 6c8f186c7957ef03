/* Reference of columns.cu, and of the sums over rows that columns.cuh makes for batch norm. */
#include "kernels/layers.h"

#include <assert.h>
#include <string.h>

#include "kernels/columns.h"
#include "kernels/columns_ref.h"
#include "kernels/values.h"

static_assert(KERNEL_COLUMNS_COUNTERS >= COLUMNS_BLOCKS, "a counter for each slice that has one");

/* One channel's sums: what is added and how the rows are split. */
struct walk {
    columns_terms terms;
    const void *user;
    size_t rows;
    uint32_t channel, blocks, lanes;
};

/* What one lane of one block adds: runs of rows in f32, the runs in double. */
static void add_lane(const struct walk *walk, uint32_t block, uint32_t lane,
                     double total[COLUMNS_REF_KINDS])
{
    const size_t stride = (size_t)walk->blocks * walk->lanes;

    for (uint32_t k = 0; k < COLUMNS_REF_KINDS; k++)
        total[k] = 0.0;
    for (size_t run = (size_t)block * walk->lanes + lane; run < walk->rows;
         run += stride * COLUMNS_RUN) {
        float sums[COLUMNS_REF_KINDS] = {0};

        for (size_t i = 0; i < COLUMNS_RUN && run + i * stride < walk->rows; i++) {
            float terms[COLUMNS_REF_KINDS] = {0};

            walk->terms(walk->user, walk->rows - 1 - run - i * stride, walk->channel, terms);
            for (uint32_t k = 0; k < COLUMNS_REF_KINDS; k++)
                sums[k] += terms[k];
        }
        for (uint32_t k = 0; k < COLUMNS_REF_KINDS; k++)
            total[k] += (double)sums[k];
    }
}

/* A warp has 2 or 4 lanes of rows; they are added in the order of one or two xor shuffles. */
static void add_block(const struct walk *walk, uint32_t block, double sums[COLUMNS_REF_KINDS])
{
    for (uint32_t k = 0; k < COLUMNS_REF_KINDS; k++)
        sums[k] = 0.0;
    for (uint32_t warp = 0; warp < COLUMNS_WARPS; warp++) {
        const uint32_t lanes = walk->lanes / COLUMNS_WARPS;
        double lane[4][COLUMNS_REF_KINDS] = {{0.0}};

        for (uint32_t i = 0; i < lanes; i++)
            add_lane(walk, block, warp * lanes + i, lane[i]);
        for (uint32_t k = 0; k < COLUMNS_REF_KINDS; k++)
            sums[k] += lanes == 2 ? lane[0][k] + lane[1][k]
                                  : (lane[0][k] + lane[2][k]) + (lane[1][k] + lane[3][k]);
    }
}

void columns_ref(columns_terms terms, const void *user, size_t rows, uint32_t channels,
                 uint32_t channel, uint32_t pack, double sums[COLUMNS_REF_KINDS])
{
    const struct walk walk = {terms,
                              user,
                              rows,
                              channel,
                              columns_blocks(rows, channels, pack),
                              columns_lanes(channels, pack)};
    double parts[COLUMNS_MERGE][COLUMNS_REF_KINDS] = {{0}};

    assert(channel < channels && walk.blocks > 0);
    for (uint32_t block = 0; block < walk.blocks; block++) {
        double part[COLUMNS_REF_KINDS];

        add_block(&walk, block, part);
        for (uint32_t k = 0; k < COLUMNS_REF_KINDS; k++)
            parts[block % COLUMNS_MERGE][k] += part[k];
    }
    for (uint32_t k = 0; k < COLUMNS_REF_KINDS; k++) {
        sums[k] = 0.0;
        for (uint32_t p = 0; p < COLUMNS_MERGE; p++)
            sums[k] += parts[p][k];
    }
}

struct plain {
    const void *x;
    enum kernel_type type;
    uint32_t channels;
};

static void plain_terms(const void *user, size_t row, uint32_t channel,
                        float terms[COLUMNS_REF_KINDS])
{
    const struct plain *plain = user;

    terms[0] = values_get(plain->x, plain->type, row * plain->channels + channel);
}

void kernel_columns_ref(const void *x, enum kernel_type type, size_t rows, uint32_t channels,
                        void *sums, enum kernel_type sums_type)
{
    const struct plain plain = {x, type, channels};

    assert(channels % 4 == 0);
    for (uint32_t c = 0; c < channels; c++) {
        double in[COLUMNS_REF_KINDS];

        columns_ref(plain_terms, &plain, rows, channels, c, kernel_pack(type, channels), in);
        values_set(sums, sums_type, c, (float)in[0]);
    }
}

size_t kernel_columns_bytes(enum kernel_type type, size_t rows, uint32_t channels, uint32_t kinds)
{
    const uint32_t pack = kernel_pack(type, channels);

    return (size_t)columns_slices(channels, pack) * columns_blocks(rows, channels, pack) * kinds *
           columns_packs(channels, pack) * pack * sizeof(double);
}
