/* Collects the lines and groups of a profile. See profile.h. */
#include "worker/profile/profile.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "worker/net/profile.h"
#include "worker/profile/cost.h"

enum { PARTS_MAX = 64 }; /* lines that are not layers */

const char *profile_group_name(enum profile_group group)
{
    static const char *const names[PROFILE_GROUPS] = {
#define GROUP_NAME(name, text) [PROFILE_##name] = (text),
        PROFILE_GROUP_TABLE(GROUP_NAME)
#undef GROUP_NAME
    };

    assert((size_t)group < PROFILE_GROUPS);
    return names[group];
}

static enum profile_group group_of(enum graph_op op)
{
    switch (op) {
    case GRAPH_CONV2D:
        return PROFILE_CONVOLUTION;
    case GRAPH_BATCH_NORM:
        return PROFILE_BATCH_NORM;
    case GRAPH_LINEAR:
        return PROFILE_LINEAR;
    case GRAPH_INPUT:
        return PROFILE_IMAGES;
    case GRAPH_RELU:
    case GRAPH_MAX_POOL:
    case GRAPH_AVG_POOL:
    case GRAPH_FLATTEN:
    case GRAPH_ADD:
    case GRAPH_CAST:
    case GRAPH_CROSS_ENTROPY:
        return PROFILE_OTHER;
    }
    return PROFILE_OTHER;
}

static enum profile_group group_of_phase(enum net_phase phase)
{
    if (phase == NET_PHASE_INPUT)
        return PROFILE_IMAGES;
    return phase == NET_PHASE_REDUCE ? PROFILE_REDUCE : PROFILE_OPTIMIZER;
}

static void add_layers(struct profile *profile, const struct net *net,
                       const struct cost_layer *costs)
{
    const struct graph *graph = net_graph(net);

    for (uint32_t i = 0; i < graph->layer_count; i++) {
        const struct graph_layer *layer = &graph->layers[i];

        profile->lines[profile->line_count++] = (struct profile_line){
            .name = layer->name,
            .op = graph_op_name(layer->op),
            .type = graph_dtype_name(layer->out.dtype),
            .dtype = layer->out.dtype,
            .group = group_of(layer->op),
            .flop = costs[i].forward.flop + costs[i].backward.flop,
            .bytes = layer->op == GRAPH_INPUT ? 0.0 /* counted in the line "images" */
                                              : costs[i].forward.bytes + costs[i].backward.bytes,
        };
    }
}

/* The line of a part that is not a layer: entries with the same name share a line. NULL: no room.
 */
static struct profile_line *part_line(struct profile *profile, const struct net_profile *entry,
                                      uint32_t layers)
{
    struct profile_line *line;

    for (uint32_t i = layers; i < profile->line_count; i++) {
        assert(profile->lines[i].name != NULL);
        if (strcmp(profile->lines[i].name, entry->layer) == 0)
            return &profile->lines[i];
    }
    if (profile->line_count == layers + PARTS_MAX)
        return NULL;
    line = &profile->lines[profile->line_count++];
    *line = (struct profile_line){.name = entry->layer,
                                  .op = "",
                                  .type = "",
                                  .group = group_of_phase(entry->phase),
                                  .is_beside = entry->is_beside};
    return line;
}

/* Bytes that a part of a step moves; 0: unknown. */
static double part_bytes(const struct profile *profile, const struct net *net,
                         const struct cost_layer *costs, const char *name)
{
    if (strcmp(name, "images") == 0)
        return costs[0].forward.bytes;
    if (strcmp(name, "optimizer") == 0)
        return cost_of_update(net_graph(net), profile->facts.optim, net_stores_types(net));
    return 0.0;
}

static void add_times(struct profile *profile, const struct net *net,
                      const struct cost_layer *costs)
{
    const uint32_t layers = net_graph(net)->layer_count;
    struct net_profile entry;

    for (uint32_t i = 0; net_profile(net, i, &entry); i++) {
        const double ms = (double)entry.ns * 1e-6 / profile->facts.steps;
        struct profile_line *line;

        if (entry.calls == 0)
            continue;
        assert(entry.index == GRAPH_NONE || entry.index < layers);
        line = entry.index != GRAPH_NONE ? &profile->lines[entry.index]
                                         : part_line(profile, &entry, layers);
        if (line == NULL)
            continue;
        if (entry.phase == NET_PHASE_BACKWARD)
            line->backward_ms += ms;
        else
            line->forward_ms += ms;
        if (entry.index == GRAPH_NONE)
            line->bytes = part_bytes(profile, net, costs, entry.layer);
    }
}

/* A line for time of the host: waiting and collectives. */
static void add_host(struct profile *profile, const char *name, enum profile_group group,
                     bool is_beside, double ms)
{
    assert(group < PROFILE_GROUPS);
    if (ms > 0.0)
        profile->lines[profile->line_count++] = (struct profile_line){.name = name,
                                                                      .op = "",
                                                                      .type = "",
                                                                      .group = group,
                                                                      .is_beside = is_beside,
                                                                      .forward_ms = ms};
}

static void sum_up(struct profile *profile)
{
    for (uint32_t i = 0; i < profile->line_count; i++) {
        const struct profile_line *line = &profile->lines[i];

        assert((size_t)line->group < PROFILE_GROUPS);
        if (!line->is_beside)
            profile->group_ms[line->group] += line->forward_ms + line->backward_ms;
    }
    for (uint32_t g = 0; g < PROFILE_GROUPS; g++)
        profile->sum_ms += profile->group_ms[g];
    if (profile->facts.step_ms > profile->sum_ms)
        profile->rest_ms = profile->facts.step_ms - profile->sum_ms;
}

enum status profile_new(struct profile **out, const struct net *net,
                        const struct profile_facts *facts, struct err *err)
{
    const uint32_t layers = net_graph(net)->layer_count;
    struct cost_layer *costs = calloc(layers, sizeof *costs);
    struct profile *profile = calloc(1, sizeof *profile);
    struct rusage usage;

    assert(facts->steps > 0 && facts->stage_count <= PROFILE_STAGES_MAX);
    *out = profile;
    if (profile != NULL)
        profile->lines = calloc((size_t)layers + PARTS_MAX + 3, sizeof *profile->lines);
    if (profile == NULL || profile->lines == NULL || costs == NULL) {
        free(costs);
        profile_free(out);
        return err_set(err, STATUS_MEMORY, 0, "no memory for a profile of %u layers", layers);
    }
    profile->facts = *facts;
    profile->net_bytes = net_bytes(net);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        profile->peak_rss_bytes = (size_t)usage.ru_maxrss * 1024;
    cost_of_layers(net_graph(net), facts->images, net_stores_types(net), costs);
    add_layers(profile, net, costs);
    add_times(profile, net, costs);
    add_host(profile, "collectives of the host", PROFILE_REDUCE, true, facts->comm_ms);
    add_host(profile, "collectives, waited for", PROFILE_REDUCE, false, facts->exposed_ms);
    add_host(profile, "data wait", PROFILE_DATA_WAIT, false, facts->wait_ms);
    sum_up(profile);
    free(costs);
    return STATUS_OK;
}

void profile_free(struct profile **profile)
{
    if (*profile == NULL)
        return;
    free((*profile)->lines);
    free(*profile);
    *profile = NULL;
}

double profile_roof_share(const struct profile *profile, const struct profile_line *line)
{
    const double ms = line->forward_ms + line->backward_ms;

    if (profile->facts.roof == NULL || ms <= 0.0 || line->bytes <= 0.0)
        return -1.0;
    return roof_seconds(profile->facts.roof, line->dtype, profile->facts.tf32, line->flop,
                        line->bytes) *
           1e3 / ms;
}
