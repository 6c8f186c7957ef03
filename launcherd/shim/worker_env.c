#include "launcherd/shim/worker_env.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/launch.h"
#include "common/msg_version.h"
#include "launcherd/process/rundir.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define OURS_MAX 128u

struct list {
    struct arena *arena;
    char **items;
    uint32_t count, max, ours;
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
    if (text == NULL || list->count == list->max) {
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

/* `slots`: the slots whose GPUs the worker sees. Slots from facts->gpus on are CPU shares. */
static void set_devices(struct list *list, const struct worker_env_facts *facts, uint64_t slots)
{
    char text[SLOTS_PER_NODE_MAX * 12] = "";
    size_t at = 0;
    for (uint64_t mask = slots; mask != 0; mask &= mask - 1) {
        uint32_t slot = (uint32_t)__builtin_ctzll(mask);
        if (slot < facts->gpus)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%u", at > 0 ? "," : "",
                                   facts->devices != NULL ? facts->devices[slot] : slot);
    }
    set_text(list, "CUDA_VISIBLE_DEVICES", text);
    /* Our numbers are in NVML's order, by PCI bus; CUDA's default order begins with the fastest
     * GPU. */
    set_text(list, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
}

static void set_ranks(struct list *list, const struct worker_env_facts *facts, uint32_t local)
{
    const struct msg_start *start = facts->start;
    const char *role = launch_value(&start->launch, LAUNCH_ROLE);
    const char *given_id = launch_value(&start->launch, LAUNCH_RUN_ID);
    bool is_virtual = launch_value(&start->launch, LAUNCH_VIRTUAL_LOCAL_RANK) != NULL;
    char run_id[24], error_file[PATH_MAX];

    set_number(list, "RANK", start->rank_base + local);
    set_number(list, "LOCAL_RANK", is_virtual ? 0 : local);
    set_number(list, "WORLD_SIZE", start->world);
    set_number(list, "LOCAL_WORLD_SIZE", start->local_count);
    set_number(list, "GROUP_RANK", start->node_rank);
    set_number(list, "GROUP_WORLD_SIZE", start->node_count);
    set_text(list, "ROLE_NAME", role != NULL ? role : "default");
    set_number(list, "ROLE_RANK", start->rank_base + local);
    set_number(list, "ROLE_WORLD_SIZE", start->world);
    set_text(list, "MASTER_ADDR", facts->master_addr);
    set_number(list, "MASTER_PORT", facts->master_port);
    set_number(list, "TORCHELASTIC_RESTART_COUNT", start->restart_count);
    set_number(list, "TORCHELASTIC_MAX_RESTARTS", start->max_restarts);
    (void)snprintf(run_id, sizeof run_id, "%llu", (unsigned long long)start->job_id);
    set_text(list, "TORCHELASTIC_RUN_ID", given_id != NULL ? given_id : run_id);
    set_text(list, "TORCHELASTIC_USE_AGENT_STORE", facts->has_store ? "True" : "False");
    rundir_rank_error(error_file, facts->error_dir, start->rank_base + local);
    set_text(list, "TORCHELASTIC_ERROR_FILE", error_file);
    if (facts->gpus > 0 || facts->hides_gpus)
        set_devices(list, facts,
                    is_virtual ? 1ull << worker_env_slot(start->slot_mask, local)
                               : start->slot_mask);
}

/* `names`: the variables for the id of the array, the job's index in it, the number of jobs, the
 * least and the greatest index. */
static void set_array(struct list *list, const struct msg_start *start, const char *const names[5])
{
    const uint64_t values[] = {start->array_job, start->array_index, start->array_count,
                               start->array_min, start->array_max};

    for (uint32_t i = 0; start->array_job != 0 && i < 5; i++)
        set_number(list, names[i], values[i]);
}

/* Variables about the job. Inside an allocation of Slurm (`run --slurm`), Slurm's own are used
 * instead. */
static void set_slurm_job(struct list *list, const struct worker_env_facts *facts)
{
    const struct msg_start *start = facts->start;

    set_number(list, "SLURM_JOB_ID", start->job_id);
    set_number(list, "SLURM_JOBID", start->job_id);
    set_text(list, "SLURM_JOB_NAME", start->name);
    set_text(list, "SLURM_JOB_USER", facts->user);
    set_text(list, "SLURM_SUBMIT_DIR", start->cwd);
    set_number(list, "SLURM_RESTART_COUNT", start->restart_count);
    set_array(list, start,
              (const char *const[]){"SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID",
                                    "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN",
                                    "SLURM_ARRAY_TASK_MAX"});
    if (start->node_count == 1) {
        set_text(list, "SLURM_JOB_NODELIST", facts->node_name);
        set_text(list, "SLURM_NODELIST", facts->node_name);
    }
}

/* What srun would set, for programs that look for it (man srun, "OUTPUT ENVIRONMENT VARIABLES"). */
static void set_slurm(struct list *list, const struct worker_env_facts *facts, uint32_t local)
{
    const struct msg_start *start = facts->start;
    char per_node[32];
    bool has_job = false;

    for (uint32_t i = 0; i < start->env.count; i++)
        has_job = has_job || strcmp(start->env.items[i].name, "SLURM_JOB_ID") == 0;
    if (!has_job)
        set_slurm_job(list, facts);
    set_number(list, "SLURM_STEP_ID", 0);
    set_number(list, "SLURM_PROCID", start->rank_base + local);
    set_number(list, "SLURM_LOCALID", local);
    set_number(list, "SLURM_NODEID", start->node_rank);
    set_number(list, "SLURM_NTASKS", start->world);
    set_number(list, "SLURM_NPROCS", start->world);
    set_number(list, "SLURM_STEP_NUM_TASKS", start->world);
    set_number(list, "SLURM_NNODES", start->node_count);
    set_number(list, "SLURM_JOB_NUM_NODES", start->node_count);
    set_number(list, "SLURM_STEP_NUM_NODES", start->node_count);
    set_number(list, "SLURM_NTASKS_PER_NODE", start->local_count);
    (void)snprintf(per_node, sizeof per_node, start->node_count > 1 ? "%u(x%u)" : "%u",
                   start->local_count, start->node_count);
    set_text(list, "SLURM_TASKS_PER_NODE", per_node);
    set_text(list, "SLURM_STEP_TASKS_PER_NODE", per_node);
    set_text(list, "SLURMD_NODENAME", facts->node_name);
    set_text(list, "SLURM_LAUNCH_NODE_IPADDR", facts->master_addr);
}

/* What horovodrun sets for each rank. */
static void set_horovod(struct list *list, const struct worker_env_facts *facts, uint32_t local)
{
    const struct msg_start *start = facts->start;

    set_text(list, "HOROVOD_HOSTNAME", facts->node_name);
    set_number(list, "HOROVOD_RANK", start->rank_base + local);
    set_number(list, "HOROVOD_SIZE", start->world);
    set_number(list, "HOROVOD_LOCAL_RANK", local);
    set_number(list, "HOROVOD_LOCAL_SIZE", start->local_count);
    set_number(list, "HOROVOD_CROSS_RANK", start->node_rank);
    set_number(list, "HOROVOD_CROSS_SIZE", start->node_count);
}

/* What mpirun of Open MPI, MPICH (Hydra) and MVAPICH sets for each rank: for programs that read it
 * instead of asking MPI. */
static void set_mpi(struct list *list, const struct worker_env_facts *facts, uint32_t local)
{
    static const char *const rank[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"};
    static const char *const size[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"};
    static const char *const local_rank[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                             "MV2_COMM_WORLD_LOCAL_RANK"};
    static const char *const local_size[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                             "MV2_COMM_WORLD_LOCAL_SIZE"};
    const struct msg_start *start = facts->start;

    for (uint32_t i = 0; i < sizeof rank / sizeof rank[0]; i++) {
        set_number(list, rank[i], start->rank_base + local);
        set_number(list, size[i], start->world);
        set_number(list, local_rank[i], local);
        set_number(list, local_size[i], start->local_count);
    }
    set_number(list, "OMPI_COMM_WORLD_NODE_RANK", local);
}

static void set_default(struct list *list, const char *name, const char *value)
{
    if (!has_name(list, list->count, name))
        set_text(list, name, value);
}

/* Horovod's ranks meet in an HTTP store beside the c10d store (launcherd/c10d/http.h). Variables
 * that the job sets are not changed, so a program can still use MPI for that. */
static void set_horovod_rendezvous(struct list *list, const struct worker_env_facts *facts)
{
    const char *styles = launch_value(&facts->start->launch, LAUNCH_ENV_STYLE);
    char port[16];

    if (styles == NULL || !launch_has_word(styles, "horovod") || !facts->has_store)
        return;
    (void)snprintf(port, sizeof port, "%u", facts->master_port);
    set_default(list, "HOROVOD_GLOO_RENDEZVOUS_ADDR", facts->master_addr);
    set_default(list, "HOROVOD_GLOO_RENDEZVOUS_PORT", port);
    set_default(list, "HOROVOD_CONTROLLER", "gloo");
    set_default(list, "HOROVOD_CPU_OPERATIONS", "gloo");
    if (facts->interface != NULL)
        set_default(list, "HOROVOD_GLOO_IFACE", facts->interface);
}

/* A rank that calls MPI_Init without mpirun would be alone in a world of its own, and all ranks
 * would do the same work. These variables make MPI_Init fail instead: without its component `orte`
 * Open MPI 4 cannot start a single process, and MPICH finds no process manager at this address.
 * mpirun as the program of a rank (docs/from-mpi.md) still works: it sets other variables, which
 * take precedence. Variables that the job sets are not changed. */
static void refuse_mpi_worlds_of_one(struct list *list, const struct worker_env_facts *facts)
{
    const char *styles = launch_value(&facts->start->launch, LAUNCH_ENV_STYLE);

    if (styles == NULL || !launch_has_word(styles, "mpi") || facts->start->world < 2)
        return;
    set_default(list, "OMPI_MCA_schizo", "^orte");
    set_default(list, "PMI_PORT", "127.0.0.1:1");
}

/* --env-style: also sets the rank variables of other launchers. */
static void set_styles(struct list *list, const struct worker_env_facts *facts, uint32_t local)
{
    const char *styles = launch_value(&facts->start->launch, LAUNCH_ENV_STYLE);

    if (styles == NULL)
        return;
    if (launch_has_word(styles, "slurm"))
        set_slurm(list, facts, local);
    if (launch_has_word(styles, "horovod"))
        set_horovod(list, facts, local);
    if (launch_has_word(styles, "mpi"))
        set_mpi(list, facts, local);
}

static void set_own(struct list *list, const struct worker_env_facts *facts, uint32_t local)
{
    char metrics[PATH_MAX];

    set_number(list, "DDP_JOB_ID", facts->start->job_id);
    set_array(list, facts->start,
              (const char *const[]){"DDP_ARRAY_JOB_ID", "DDP_ARRAY_INDEX", "DDP_ARRAY_COUNT",
                                    "DDP_ARRAY_MIN", "DDP_ARRAY_MAX"});
    set_text(list, "DDP_CLUSTER", facts->start->cluster);
    set_number(list, "DDP_GENERATION", facts->start->generation);
    set_number(list, "DDP_CHECKPOINT_STEP", facts->start->checkpoint_step);
    set_number(list, "DDP_SHIM_FD", facts->shim_fd);
    set_number(list, "DDP_SHIM_PROTOCOL", msg_protocol());
    set_text(list, "DDP_NODE_NAME", facts->node_name);
    set_text(list, "DDP_NODE_ADDRESS", facts->node_address);
    set_text(list, "DDP_JOB_TOKEN", facts->token);
    rundir_rank_metrics(metrics, facts->error_dir, facts->start->rank_base + local);
    set_text(list, "DDP_METRICS", metrics);
}

/* ddpctl refuses these names too, but a request may come from another program. */
static bool may_set(const char *name)
{
    return name[0] != '\0' && strchr(name, '=') == NULL && strncmp(name, "DDP_", 4) != 0 &&
           strcmp(name, "NCCL_SOCKET_MAGIC") != 0;
}

/* By default NCCL, Gloo and TensorPipe may choose another interface than the one by which the nodes
 * reach one another, or, if the host name has a loopback address, one that does not work. */
static void set_interface(struct list *list, const char *interface)
{
    char exactly[72];

    (void)snprintf(exactly, sizeof exactly, "=%s", interface); /* "eth1" would also match eth10 */
    set_default(list, "NCCL_SOCKET_IFNAME", exactly);
    set_default(list, "GLOO_SOCKET_IFNAME", interface);
    set_default(list, "TP_SOCKET_IFNAME", interface);
}

static bool path_has(const char *path, const char *dir)
{
    size_t bytes = strlen(dir);
    for (const char *at = path; *at != '\0'; at += at[strcspn(at, ":")] == ':') {
        size_t length = strcspn(at, ":");
        if (length == bytes && memcmp(at, dir, bytes) == 0)
            return true;
        at += length;
    }
    return false;
}

/* Adds `dir` to the end of the list of folders in the variable `name`, so that everything else in
 * the list comes first. Does nothing if the variable is not set. */
static void extend_path(struct list *list, const char *name, const char *dir)
{
    const size_t name_bytes = strlen(name);

    for (uint32_t i = 0; i < list->count; i++) {
        const char *path = list->items[i] + name_bytes + 1;
        if (strncmp(list->items[i], name, name_bytes) != 0 || path[-1] != '=' ||
            path_has(path, dir))
            continue;
        size_t bytes = strlen(list->items[i]) + strlen(dir) + 2;
        char *text = arena_alloc(list->arena, bytes);
        list->failed = list->failed || text == NULL;
        if (text == NULL)
            return;
        (void)snprintf(text, bytes, "%s=%s%s%s", name, path, path[0] != '\0' ? ":" : "", dir);
        list->items[i] = text;
    }
}

char **worker_env_build(const struct worker_env_facts *facts, uint32_t local, struct arena *arena)
{
    const struct msg_pair_list *env = &facts->start->env;
    struct list list = {.arena = arena, .max = (uint32_t)env->count + OURS_MAX};

    list.items = arena_alloc(arena, (list.max + (size_t)1) * sizeof *list.items);
    if (list.items == NULL)
        return NULL;
    set_own(&list, facts, local);
    set_text(&list, "USER", facts->user);
    set_text(&list, "LOGNAME", facts->user);
    set_text(&list, "PWD", facts->start->cwd);
    set_ranks(&list, facts, local);
    set_styles(&list, facts, local);
    list.ours = list.count;
    for (uint32_t i = 0; i < env->count; i++)
        if (may_set(env->items[i].name) && !has_name(&list, list.ours, env->items[i].name))
            set_text(&list, env->items[i].name, env->items[i].value);
    if (facts->interface != NULL)
        set_interface(&list, facts->interface);
    set_horovod_rendezvous(&list, facts);
    refuse_mpi_worlds_of_one(&list, facts);
    /* The output of a script is in the log at once, and is not lost if the script crashes. */
    set_default(&list, "PYTHONUNBUFFERED", "1");
    set_default(&list, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    if (facts->start->local_count > 1)
        set_default(&list, "OMP_NUM_THREADS", "1");
    set_default(&list, "PATH", DEFAULT_PATH);
    set_default(&list, "HOME", facts->home);
    set_default(&list, "SHELL", facts->shell);
    set_default(&list, "LANG", "C.UTF-8");
    if (facts->tools_dir != NULL)
        extend_path(&list, "PATH", facts->tools_dir);
    if (facts->python_dir != NULL) {
        set_default(&list, "PYTHONPATH", "");
        extend_path(&list, "PYTHONPATH", facts->python_dir);
    }
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
