/* The health of a GPU from NVML, for `ddpctl doctor`. */
#include <string.h>

#include "launcherd/gpu/gpu_holders.h"
#include "launcherd/gpu/nvml.h"

#define LINKS_MAX 18u /* NVML_NVLINK_MAX_LINKS */

static int64_t number(int (*get)(void *, unsigned *), void *device)
{
    unsigned value = 0;

    return get != NULL && get(device, &value) == NVML_SUCCESS ? (int64_t)value : GAUGE_UNKNOWN;
}

/* A link that this GPU does not have answers with an error. */
static void count_links(const struct nvml *nvml, void *device, struct nvml_health *health)
{
    for (unsigned link = 0; nvml->get_link != NULL && link < LINKS_MAX; link++) {
        unsigned is_up = 0;

        if (nvml->get_link(device, link, &is_up) != NVML_SUCCESS)
            continue;
        health->links_up = (health->links_up < 0 ? 0 : health->links_up) + (is_up != 0);
        health->links_down = (health->links_down < 0 ? 0 : health->links_down) + (is_up == 0);
    }
}

void nvml_health(const struct nvml *nvml, uint32_t index, struct nvml_health *health)
{
    unsigned long long reasons = 0;
    void *device = NULL;

    memset(health, 0xff, sizeof *health); /* -1: GAUGE_UNKNOWN */
    if (nvml->get_handle(index, &device) != NVML_SUCCESS)
        return;
    health->retire_pending = number(nvml->get_retire_pending, device);
    health->has_persistence = number(nvml->get_persistence, device);
    health->pcie_width = number(nvml->get_pcie_width, device);
    health->pcie_width_max = number(nvml->get_pcie_width_max, device);
    if (nvml->get_throttle != NULL && nvml->get_throttle(device, &reasons) == NVML_SUCCESS)
        health->throttle = (int64_t)reasons;
    count_links(nvml, device, health);
}

int64_t nvml_driver(const struct nvml *nvml, char *version, size_t version_bytes)
{
    char text[80] = "";
    int cuda = 0;

    if (nvml->get_driver != NULL && nvml->get_driver(text, sizeof text) == NVML_SUCCESS)
        gpu_printable(text, version, version_bytes);
    return nvml->get_cuda != NULL && nvml->get_cuda(&cuda) == NVML_SUCCESS ? cuda : GAUGE_UNKNOWN;
}
