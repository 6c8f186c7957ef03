/* SHA-256 over the layers of a graph, in a byte order that does not depend on the machine. */
#include "worker/graph/hash.h"

#include <assert.h>
#include <string.h>

#include <openssl/evp.h>

#define NUMBERS_MAX 20 /* of one layer */

static void add(EVP_MD_CTX *sha, const void *bytes, size_t byte_count)
{
    int ok = EVP_DigestUpdate(sha, bytes, byte_count);

    assert(ok);
    (void)ok;
}

static uint32_t float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* As little-endian bytes. */
static void add_numbers(EVP_MD_CTX *sha, const uint32_t *numbers, uint32_t count)
{
    uint8_t bytes[4 * NUMBERS_MAX];

    assert(count <= NUMBERS_MAX);
    for (uint32_t i = 0; i < 4 * count; i++)
        bytes[i] = (uint8_t)(numbers[i / 4] >> (8 * (i % 4)));
    add(sha, bytes, (size_t)4 * count);
}

static void add_layer(EVP_MD_CTX *sha, const struct graph_layer *layer)
{
    const uint32_t fused = (uint32_t)layer->fused_relu | (uint32_t)layer->fused_pool << 1 |
                           (uint32_t)layer->fused_add << 2 | (uint32_t)layer->rounds_norm << 3;
    const uint32_t numbers[] = {
        layer->inputs[0],
        layer->inputs[1],
        layer->out.dim_count,
        layer->out.dims[0],
        layer->out.dim_count > 1 ? layer->out.dims[1] : 0,
        layer->out.dim_count > 1 ? layer->out.dims[2] : 0,
        layer->window.kernel,
        layer->window.stride,
        layer->window.pad,
        layer->has_bias,
        float_bits(layer->eps),
        float_bits(layer->momentum),
        fused,
    };
    const char *op = graph_op_name(layer->op);

    add(sha, layer->name, strlen(layer->name) + 1);
    add(sha, op, strlen(op) + 1);
    add_numbers(sha, numbers, sizeof numbers / sizeof numbers[0]);
}

void graph_hash(const struct graph *graph, uint8_t hash[32])
{
    EVP_MD_CTX *sha = EVP_MD_CTX_new();
    int ok = sha != NULL && EVP_DigestInit_ex(sha, EVP_sha256(), NULL);

    assert(ok); /* fails only when out of memory */
    for (uint32_t i = 0; i < graph->layer_count; i++)
        add_layer(sha, &graph->layers[i]);
    ok = EVP_DigestFinal_ex(sha, hash, NULL);
    assert(ok);
    (void)ok;
    EVP_MD_CTX_free(sha);
}
