#include "worker/device.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/io/mono.h"
#include "worker/backend/cuda/exec/backend.h"
#include "worker/backend/cuda/module/load.h"

#define DEVICE_ANY UINT32_MAX

/* The first NCCL that lets ranks share a GPU: its user guide, "Environment Variables",
 * NCCL_MULTI_RANK_GPU_ENABLE. */
#define SHARING_VARIABLE "NCCL_MULTI_RANK_GPU_ENABLE"
#define SHARING_NCCL 23000u

enum { VERSION_BYTES = 32 };

/* "cuda:N": N; "cuda": DEVICE_ANY; false for anything else. */
static bool parse_cuda(const char *asked, uint32_t *index)
{
    char *end;
    unsigned long number;

    *index = DEVICE_ANY;
    if (strcmp(asked, "cuda") == 0)
        return true;
    if (strncmp(asked, "cuda:", 5) != 0 || asked[5] < '0' || asked[5] > '9')
        return false;
    number = strtoul(asked + 5, &end, 10);
    *index = (uint32_t)number;
    return *end == '\0' && number < 1024;
}

bool device_is_valid(const char *asked)
{
    uint32_t index;

    return strcmp(asked, "auto") == 0 || strcmp(asked, "cpu") == 0 || parse_cuda(asked, &index);
}

/* Chooses this worker's GPU, before any is touched: the others are not this rank's, and may be too
 * old for the kernels. A launcher usually makes a single one visible. */
static enum status pick(const struct cuda_module *module, struct cuda_device *seen, uint32_t *index,
                        uint32_t local_rank, struct err *err)
{
    uint32_t count = 0;
    enum status status = module->device_count(&count, err);

    if (status != STATUS_OK)
        return status;
    if (*index == DEVICE_ANY)
        *index = local_rank % count;
    return module->device_query(*index, seen, err);
}

/* The first set of plans, and with it the libraries' handles, which nets share: see cuda_backend_share. A warm worker
 * opens its device twice. */
static struct {
    const struct cuda_module *module;
    struct plan_set *plans; /* NULL: none */
    uint32_t index;
} opened;

static void close_libraries(void)
{
    if (opened.plans != NULL)
        opened.module->plans->close(&opened.plans);
}

/* Whether cuDNN and cuBLAS are there and new enough. */
static enum status open_libraries(const struct cuda_module *module, uint32_t index, struct err *err)
{
    const struct plan_options options = {.device_index = index, .cache_folder = ""};

    if (opened.plans != NULL && opened.index == index)
        return STATUS_OK;
    close_libraries();
    opened.module = module;
    opened.index = index;
    return module->plans->open(&opened.plans, &options, err);
}

static enum status open_cuda(struct device *device, uint32_t index, uint32_t local_rank,
                             struct err *err)
{
    const struct cuda_load_options options = {.module_path = NULL};
    const struct cuda_module *module = NULL;
    static struct cuda_kernels kernels; /* never freed, as the module is not */
    struct cuda_device seen = {.device_count = 0};
    enum status status = cuda_load_driver(&options, &module, err);

    if (status == STATUS_OK)
        status = pick(module, &seen, &index, local_rank, err);
    if (status == STATUS_OK)
        status = cuda_module_resolve(module, &kernels, err);
    if (status == STATUS_OK)
        status = open_libraries(module, index, err);
    if (status != STATUS_OK)
        return status;
    cuda_backend_use(module->runtime, &kernels, module->plans, index);
    cuda_backend_share(opened.plans);
    device->backend = &backend_cuda;
    device->runtime = module->runtime;
    device->nccl = module->nccl;
    device->device_count = seen.device_count;
    (void)snprintf(device->identity.name, sizeof device->identity.name, "%.72s, device %u",
                   seen.name, index);
    memcpy(device->identity.uuid, seen.uuid, sizeof device->identity.uuid);
    return STATUS_OK;
}

static void use_cpu(struct device *device)
{
    device->backend = &backend_cpu;
    (void)snprintf(device->identity.name, sizeof device->identity.name, "CPU");
}

enum status device_open(struct device *device, const char *asked, uint32_t local_rank,
                        struct err *notice, struct err *err)
{
    const uint64_t begun_us = mono_us();
    struct err why = {.text = ""};
    uint32_t index = DEVICE_ANY;
    enum status status = STATUS_OK;

    *device = (struct device){0};
    *notice = (struct err){0};
    if (!device_is_valid(asked))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--device %.40s: expected auto, cpu, cuda or cuda:N", asked);
    if (strcmp(asked, "cpu") == 0) {
        use_cpu(device);
    } else if (strcmp(asked, "auto") == 0) {
        if (open_cuda(device, DEVICE_ANY, local_rank, &why) != STATUS_OK) {
            use_cpu(device);
            (void)err_set(notice, why.status, why.code, "training on the CPU: %.200s", why.text);
        }
    } else {
        (void)parse_cuda(asked, &index);
        status = open_cuda(device, index, local_rank, &why);
        if (status != STATUS_OK)
            (void)err_set(err, status, why.code, "--device %s: %.200s", asked, why.text);
    }
    if (status != STATUS_OK)
        return status;
    (void)snprintf(device->identity.backend, sizeof device->identity.backend, "%s",
                   device->backend->name);
    assert(device->backend != NULL && (device->runtime != NULL || device->nccl == NULL));
    device->open_us = mono_us() - begun_us;
    return STATUS_OK;
}

void device_choose(uint32_t index)
{
    cuda_backend_choose(index);
}

void device_close(struct device *device)
{
    if (device->runtime != NULL) {
        cuda_backend_share(NULL);
        close_libraries();
        device->runtime->device_reset();
    }
    *device = (struct device){0};
}

bool device_takes_nccl(const struct device *device, const char *comm, uint32_t world)
{
    return device->runtime != NULL && world > 1 && strcmp(comm, "gloo") != 0;
}

enum status device_find_nccl(struct device *device, struct err *err)
{
    assert(device->nccl != NULL); /* open_cuda refuses a module without it */
    return device->nccl->find(NULL, &device->nccl_found, err);
}

static void version_words(uint32_t version, char text[VERSION_BYTES])
{
    (void)snprintf(text, VERSION_BYTES, "%u.%u.%u", version / 10000, version / 100 % 100,
                   version % 100);
}

void device_words(const struct device *device, char *text, size_t text_bytes)
{
    char version[VERSION_BYTES];

    version_words(device->nccl_found.version, version);
    (void)snprintf(text, text_bytes, "training on %s", device->identity.name);
    if (device->nccl_found.version != 0)
        (void)snprintf(text, text_bytes, "training on %s, NCCL %s of %s", device->identity.name,
                       version, device->nccl_found.path);
}

struct device_sharing device_sharing(const struct device *device, const char *comm)
{
    const char *asked = getenv(SHARING_VARIABLE); /* NOLINT(concurrency-mt-unsafe): only read */
    struct device_sharing sharing = {.is_asked = asked != NULL && strtol(asked, NULL, 10) != 0,
                                     .nccl = device->nccl_found.version};

    sharing.is_allowed =
        strcmp(comm, "gloo") == 0 || (sharing.is_asked && sharing.nccl >= SHARING_NCCL);
    return sharing;
}

static bool same_gpu(const struct device_identity *a, const struct device_identity *b)
{
    static const uint8_t none[DEVICE_UUID_BYTES] = {0};

    return memcmp(a->uuid, none, sizeof none) != 0 && memcmp(a->uuid, b->uuid, sizeof a->uuid) == 0;
}

static enum status refuse_sharing(const struct device_identity *identities, uint32_t a, uint32_t b,
                                  const struct device_sharing *sharing, struct err *err)
{
    char version[VERSION_BYTES];

    version_words(sharing->nccl, version);
    if (sharing->is_asked)
        return err_set(err, STATUS_CONFLICT, 0,
                       "ranks %u and %u are on one GPU (%.48s): NCCL %s takes one rank a GPU, and "
                       "with " SHARING_VARIABLE "=1 2.30 or newer takes several: name one in "
                       "DDP_NCCL, or give --comm gloo",
                       a, b, identities[a].name, version);
    return err_set(err, STATUS_CONFLICT, 0,
                   "ranks %u and %u are on one GPU (%.48s): NCCL takes one rank a GPU. Start as "
                   "many workers as there are GPUs, or give --comm gloo, which is slower; "
                   "docs/gpus.md has how NCCL 2.30 shares one",
                   a, b, identities[a].name);
}

enum status device_check_identities(const struct device_identity *identities, uint32_t world,
                                    const struct device_sharing *sharing, struct err *err)
{
    for (uint32_t rank = 1; rank < world; rank++)
        if (strncmp(identities[rank].backend, identities[0].backend,
                    sizeof identities[0].backend) != 0)
            return err_set(err, STATUS_CONFLICT, 0,
                           "rank 0 trains on %.72s, rank %u on %.72s: give --device cpu, or "
                           "--device cuda where every rank has a GPU",
                           identities[0].name, rank, identities[rank].name);
    for (uint32_t a = 0; !sharing->is_allowed && a < world; a++)
        for (uint32_t b = a + 1; b < world; b++)
            if (same_gpu(&identities[a], &identities[b]))
                return refuse_sharing(identities, a, b, sharing, err);
    return STATUS_OK;
}

enum status device_check(const struct device *device, struct comm *comm, uint32_t world,
                         const struct device_sharing *sharing, struct err *err)
{
    struct device_identity *identities = calloc(world, sizeof *identities);
    enum status status;

    assert(world > 1 && device->backend != NULL);
    if (identities == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to compare the devices of %u ranks",
                       world);
    status = comm_all_gather(comm, &device->identity, sizeof device->identity, identities, err);
    if (status == STATUS_OK)
        status = device_check_identities(identities, world, sharing, err);
    free(identities);
    return status;
}
