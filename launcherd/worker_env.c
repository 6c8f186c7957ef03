#include "launcherd/worker_env.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define OURS_MAX 40u

struct list {
    struct arena *arena;
    char **items;
    uint32_t count, ours;
    bool failed;
};

static bool has_name(const struct list *list, uint32_t until, const char *name)
{
    size_t bytes = strlen(name);
    for (uint32_t i = 0; i < until; i++)
        if (strncmp(list->items[i], name, bytes) == 0 && list->items[i][bytes] == '=')
            return true;
    return false;
}

static void set_text(struct list *list, const char *name, const char *value)
{
    size_t bytes = strlen(name) + strlen(value) + 2;
    char *text = arena_alloc(list->arena, bytes);
    if (text == NULL) {
        list->failed = true;
        return;
    }
    (void)snprintf(text, bytes, "%s=%s", name, value);
    list->items[list->count++] = text;
}

static void set_number(struct list *list, const char *name, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    set_text(list, name, text);
}

uint32_t worker_env_slot(uint64_t slot_mask, uint32_t local)
{
    for (uint32_t i = 0; i < local; i++)
        slot_mask &= slot_mask - 1;
    return slot_mask == 0 ? 0 : (uint32_t)__builtin_ctzll(slot_mask);
}

static void set_devices(struct list *list, uint64_t slot_mask)
{
    char text[SLOTS_PER_NODE_MAX * 4] = "";
    size_t at = 0;
    for (; slot_mask != 0; slot_mask &= slot_mask - 1)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", at > 0 ? "," : "",
                               __builtin_ctzll(slot_mask));
    set_text(list, "CUDA_VISIBLE_DEVICES", text);
    /* slots count as NVML does; CUDA's own default would put the fastest device first */
    set_text(list, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
}

static void set_ranks(struct list *list, const struct worker_env_facts *facts, uint32_t local)
{
    const struct msg_start *start = facts->start;
    char run_id[24], error_file[4200];

    set_number(list, "RANK", start->rank_base + local);
    set_number(list, "LOCAL_RANK", local);
    set_number(list, "WORLD_SIZE", start->world);
    set_number(list, "LOCAL_WORLD_SIZE", start->local_count);
    set_number(list, "GROUP_RANK", start->node_rank);
    set_number(list, "GROUP_WORLD_SIZE", start->node_count);
    set_text(list, "ROLE_NAME", "default");
    set_number(list, "ROLE_RANK", start->rank_base + local);
    set_number(list, "ROLE_WORLD_SIZE", start->world);
    set_text(list, "MASTER_ADDR", facts->master_addr);
    set_number(list, "MASTER_PORT", facts->master_port);
    set_number(list, "TORCHELASTIC_RESTART_COUNT", start->restart_count);
    set_number(list, "TORCHELASTIC_MAX_RESTARTS", start->max_restarts);
    (void)snprintf(run_id, sizeof run_id, "%llu", (unsigned long long)start->job_id);
    set_text(list, "TORCHELASTIC_RUN_ID", run_id);
    set_text(list, "TORCHELASTIC_USE_AGENT_STORE", "False");
    (void)snprintf(error_file, sizeof error_file, "%s/rank%u.json", facts->error_dir,
                   start->rank_base + local);
    set_text(list, "TORCHELASTIC_ERROR_FILE", error_file);
    if (facts->gpus > 0)
        set_devices(list, start->slot_mask);
}

static void set_own(struct list *list, const struct worker_env_facts *facts)
{
    set_number(list, "DDP_JOB_ID", facts->start->job_id);
    set_number(list, "DDP_GENERATION", facts->start->generation);
    set_number(list, "DDP_SHIM_FD", facts->shim_fd);
    set_text(list, "DDP_NODE_NAME", facts->node_name);
    set_text(list, "DDP_NODE_ADDRESS", facts->node_address);
    set_text(list, "DDP_JOB_TOKEN", facts->token);
}

static void set_default(struct list *list, const char *name, const char *value)
{
    if (!has_name(list, list->count, name))
        set_text(list, name, value);
}

char **worker_env_build(const struct worker_env_facts *facts, uint32_t local, struct arena *arena)
{
    const struct msg_pair_list *env = &facts->start->env;
    struct list list = {.arena = arena};

    list.items = arena_alloc(arena, (env->count + OURS_MAX + 1) * sizeof *list.items);
    if (list.items == NULL)
        return NULL;
    set_own(&list, facts);
    set_ranks(&list, facts, local);
    list.ours = list.count;
    for (uint32_t i = 0; i < env->count; i++)
        if (!has_name(&list, list.ours, env->items[i].name))
            set_text(&list, env->items[i].name, env->items[i].value);
    set_default(&list, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    if (facts->start->local_count > 1)
        set_default(&list, "OMP_NUM_THREADS", "1");
    set_default(&list, "PATH", DEFAULT_PATH);
    set_default(&list, "HOME", facts->home);
    list.items[list.count] = NULL;
    return list.failed ? NULL : list.items;
}

const char *worker_env_path(char *const *envp)
{
    for (; *envp != NULL; envp++)
        if (strncmp(*envp, "PATH=", 5) == 0)
            return *envp + 5;
    return DEFAULT_PATH;
}
