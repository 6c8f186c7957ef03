/* Times of a step: the clock is read around the calls of layers and around the parts of the step's
 * end. */
#include "worker/backend/cpu/internal.h"

#include <assert.h>
#include <time.h>

uint64_t cpu_clock(const struct cpu *cpu)
{
    struct timespec now;

    if (!cpu->profile)
        return 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void cpu_count(const struct cpu *cpu, struct cpu_layer *layer, enum cpu_work work, uint64_t since)
{
    assert(work < CPU_WORKS);
    if (!cpu->profile)
        return;
    layer->ns[work] += cpu_clock(cpu) - since;
    layer->calls[work]++;
}

void cpu_count_part(struct cpu *cpu, enum cpu_part part, uint64_t since)
{
    assert(part < CPU_PARTS);
    if (!cpu->profile)
        return;
    cpu->part_ns[part] += cpu_clock(cpu) - since;
    cpu->part_calls[part]++;
}

void cpu_profile_set(void *state, bool is_on)
{
    struct cpu *cpu = state;

    cpu->profile = is_on && cpu->has_profile;
}

static void describe_layer(const struct cpu *cpu, uint32_t layer, enum cpu_work work,
                           struct net_profile *profile)
{
    static const struct {
        const char *name;
        enum net_phase phase;
    } works[CPU_WORKS] = {
        [CPU_FORWARD] = {"forward", NET_PHASE_FORWARD},
        [CPU_BACKWARD] = {"backward", NET_PHASE_BACKWARD},
        [CPU_CONV_FORWARD] = {"conv forward", NET_PHASE_FORWARD},
        [CPU_CONV_DATA] = {"conv backward data", NET_PHASE_BACKWARD},
        [CPU_CONV_WEIGHTS] = {"conv backward weights", NET_PHASE_BACKWARD},
        [CPU_CONV_COPIES] = {"16-bit copies", NET_PHASE_FORWARD}, /* includes those of backward */
    };

    *profile = (struct net_profile){.layer = cpu->layers[layer].graph->name,
                                    .work = works[work].name,
                                    .index = layer,
                                    .phase = works[work].phase,
                                    .calls = cpu->layers[layer].calls[work],
                                    .ns = cpu->layers[layer].ns[work]};
}

static void describe_part(const struct cpu *cpu, enum cpu_part part, struct net_profile *profile)
{
    static const struct {
        const char *layer;
        enum net_phase phase;
    } parts[CPU_PARTS] = {
        [CPU_IMAGES] = {"images", NET_PHASE_INPUT},
        [CPU_FINITE] = {"finite check", NET_PHASE_OPTIMIZER},
        [CPU_CLIP] = {"clipping", NET_PHASE_OPTIMIZER},
        [CPU_UPDATE] = {"optimizer", NET_PHASE_OPTIMIZER},
    };

    *profile = (struct net_profile){.layer = parts[part].layer,
                                    .work = "step",
                                    .index = GRAPH_NONE,
                                    .phase = parts[part].phase,
                                    .calls = cpu->part_calls[part],
                                    .ns = cpu->part_ns[part]};
}

bool cpu_profile(const void *state, uint32_t index, struct net_profile *profile)
{
    const struct cpu *cpu = state;
    const uint32_t layers = cpu->graph->layer_count;

    if (!cpu->has_profile || index >= layers * CPU_WORKS + CPU_PARTS)
        return false;
    if (index < layers * CPU_WORKS)
        describe_layer(cpu, index / CPU_WORKS, index % CPU_WORKS, profile);
    else
        describe_part(cpu, index - layers * CPU_WORKS, profile);
    return true;
}
