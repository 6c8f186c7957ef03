#include "ddpctl/slurm_env.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"

static const char *find(char *const *environ, const char *name)
{
    const size_t bytes = strlen(name);

    for (; *environ != NULL; environ++)
        if (strncmp(*environ, name, bytes) == 0 && (*environ)[bytes] == '=')
            return *environ + bytes + 1;
    return NULL;
}

/* Parses the number at *at and moves *at past it. False: there is none, or it is too large. */
static bool take_number(const char **at, uint32_t *number)
{
    uint64_t value = 0;

    if (!isdigit((unsigned char)**at))
        return false;
    for (; isdigit((unsigned char)**at); (*at)++) {
        value = value * 10 + (uint64_t)(**at - '0');
        if (value > UINT32_MAX)
            return false;
    }
    *number = (uint32_t)value;
    return true;
}

static enum status complain(const char *name, const char *value, struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT, 0, "%s=%.80s is not of the form that Slurm gives it",
                   name, value);
}

/* Reads a plain number; `*count` is unchanged if there is no such variable. */
static enum status take_count(char *const *environ, const char *name, uint32_t *count,
                              struct err *err)
{
    const char *value = find(environ, name), *at = value;

    if (value == NULL)
        return STATUS_OK;
    return take_number(&at, count) && *at == '\0' ? STATUS_OK : complain(name, value, err);
}

/* "8(x3)" or "8(x2),4": a number for each node; "(x3)" repeats it for 3 nodes. */
static enum status take_list(char *const *environ, const char *name, uint32_t *each, bool *differ,
                             struct err *err)
{
    const char *value = find(environ, name), *at = value;
    uint32_t first = 0, number, times;

    if (value == NULL)
        return STATUS_OK;
    *differ = false;
    for (bool is_first = true;; is_first = false) {
        if (!take_number(&at, &number))
            return complain(name, value, err);
        if (strncmp(at, "(x", 2) == 0) {
            at += 2;
            if (!take_number(&at, &times) || *at++ != ')')
                return complain(name, value, err);
        }
        if (is_first)
            first = number;
        *differ = *differ || number != first;
        if (*at == '\0')
            break;
        if (*at++ != ',')
            return complain(name, value, err);
    }
    *each = *differ ? 0 : first;
    return STATUS_OK;
}

/* SLURM_GPUS_PER_NODE: "4", "a100:4", "a100:2,v100:2". */
static enum status take_gpus(char *const *environ, uint32_t *gpus, struct err *err)
{
    static const char name[] = "SLURM_GPUS_PER_NODE";
    const char *value = find(environ, name), *at = value;
    uint32_t sum = 0, number;

    if (value == NULL)
        return STATUS_OK;
    for (;;) {
        const size_t item_bytes = strcspn(at, ","), type_bytes = strcspn(at, ":");

        if (type_bytes < item_bytes)
            at += type_bytes + 1;
        if (!take_number(&at, &number) || number > SLOTS_PER_NODE_MAX ||
            (*at != ',' && *at != '\0'))
            return complain(name, value, err);
        sum += number;
        if (*at++ == '\0')
            break;
    }
    *gpus = sum;
    return STATUS_OK;
}

enum status slurm_env_read(char *const *environ, struct slurm_env *env, struct err *err)
{
    const char *id = find(environ, "SLURM_JOB_ID");
    enum status status;

    *env = (struct slurm_env){.nodes = 0};
    if (find(environ, "SLURM_HET_SIZE") != NULL)
        return err_set(
            err, STATUS_BAD_INPUT, 0,
            "Slurm's job %.20s is heterogeneous (components separated by \":\"); --slurm "
            "runs on the nodes of one allocation: ask for all nodes with the same "
            "options",
            id != NULL ? id : "");
    if (id == NULL || id[0] == '\0')
        return err_set(err, STATUS_NOT_FOUND, 0,
                       "--slurm runs inside an allocation of Slurm, and SLURM_JOB_ID is not set: "
                       "put the command into a script for sbatch, or call salloc first");
    if (strlen(id) >= sizeof env->job_id || id[strspn(id, "0123456789_")] != '\0')
        return complain("SLURM_JOB_ID", id, err);
    (void)snprintf(env->job_id, sizeof env->job_id, "%s", id);
    status = take_count(environ, "SLURM_NNODES", &env->nodes, err);
    if (status == STATUS_OK) /* of the allocation; SLURM_NNODES may be of a step */
        status = take_count(environ, "SLURM_JOB_NUM_NODES", &env->nodes, err);
    if (status == STATUS_OK)
        status = take_count(environ, "SLURM_RESTART_COUNT", &env->restart_count, err);
    if (status == STATUS_OK)
        status = take_count(environ, "SLURM_STEP_NUM_TASKS", &env->step_tasks, err);
    if (status == STATUS_OK)
        status = take_list(environ, "SLURM_TASKS_PER_NODE", &env->tasks, &env->tasks_differ, err);
    if (status == STATUS_OK)
        status = take_list(environ, "SLURM_JOB_CPUS_PER_NODE", &env->cpus, &env->cpus_differ, err);
    if (status == STATUS_OK)
        status = take_gpus(environ, &env->gpus, err);
    if (status == STATUS_OK) /* of this node; set in a batch script, and with --gres */
        status = take_count(environ, "SLURM_GPUS_ON_NODE", &env->gpus, err);
    if (status == STATUS_OK && env->nodes == 0)
        status = err_set(err, STATUS_NOT_FOUND, 0,
                         "Slurm does not say how many nodes job %s has: neither "
                         "SLURM_JOB_NUM_NODES nor SLURM_NNODES is set",
                         env->job_id);
    if (status == STATUS_OK && env->step_tasks > 1)
        status = err_set(err, STATUS_BAD_INPUT, 0,
                         "srun has started ddpctl run --slurm %u times, and each one would run the "
                         "whole job: leave out srun, ddpctl calls it itself",
                         env->step_tasks);
    return status;
}

enum status slurm_env_nodes(const struct slurm_env *env, uint32_t nodes_min, uint32_t spares,
                            uint32_t *nodes, struct err *err)
{
    const uint32_t there = env->nodes > spares ? env->nodes - spares : 0;
    const uint32_t least = nodes_min > 0 ? nodes_min : *nodes > 0 ? *nodes : 1;
    char words[48] = "";

    if (spares > 0)
        (void)snprintf(words, sizeof words, " and --spares %u", spares);
    if (least > there)
        return err_set(err, STATUS_TOO_BIG, 0,
                       "--nodes %u%s: the allocation of Slurm's job %s has %u node%s; ask for more "
                       "with sbatch -N, or use fewer here",
                       least, words, env->job_id, env->nodes, env->nodes == 1 ? "" : "s");
    if (*nodes == 0 || *nodes > there)
        *nodes = there;
    return STATUS_OK;
}

static enum status of_gpus(const struct slurm_env *env, uint32_t *nproc, struct err *err)
{
    *nproc = env->gpus;
    if (env->gpus > 0)
        return STATUS_OK;
    return err_set(err, STATUS_NOT_FOUND, 0,
                   "--nproc-per-node gpu: Slurm says of no GPU in job %s. Ask for some "
                   "(sbatch --gpus-per-node=8); after salloc --gres give their number",
                   env->job_id);
}

enum status slurm_env_nproc(const struct slurm_env *env, const char *word, uint32_t *nproc,
                            struct err *err)
{
    const bool is_any = word == NULL || strcmp(word, "auto") == 0;

    if (word != NULL && strcmp(word, "gpu") == 0)
        return of_gpus(env, nproc, err);
    if (word == NULL && env->tasks_differ)
        return err_set(err, STATUS_NOT_FOUND, 0,
                       "the nodes of Slurm's job %s have different numbers of tasks; each node "
                       "gets the same number of ranks: use --ntasks-per-node with sbatch, or "
                       "--nproc-per-node here",
                       env->job_id);
    if (word == NULL && env->tasks > 1)
        *nproc = env->tasks;
    else if (is_any && env->gpus > 0)
        *nproc = env->gpus;
    else if (word == NULL)
        *nproc = 1;
    else if (env->cpus > 0)
        *nproc = env->cpus;
    else
        return err_set(
            err, STATUS_NOT_FOUND, 0,
            "--nproc-per-node %s: the nodes of Slurm's job %s %s; give a number", word, env->job_id,
            env->cpus_differ ? "have different numbers of CPUs" : "have no known number of CPUs");
    if (*nproc > SLOTS_PER_NODE_MAX && word != NULL)
        *nproc = SLOTS_PER_NODE_MAX;
    if (*nproc <= SLOTS_PER_NODE_MAX)
        return STATUS_OK;
    return err_set(err, STATUS_TOO_BIG, 0,
                   "Slurm's job %s has %u %s on a node; a node has at most %u ranks: give "
                   "--nproc-per-node",
                   env->job_id, *nproc, *nproc == env->tasks ? "tasks" : "GPUs",
                   SLOTS_PER_NODE_MAX);
}

/* Whether `variable` has one of these names; "NAME*" stands for all names that begin with NAME. */
static bool is_one_of(const char *variable, const char *const *names)
{
    for (; *names != NULL; names++) {
        const size_t bytes = strlen(*names);

        if ((*names)[bytes - 1] == '*'
                ? strncmp(variable, *names, bytes - 1) == 0
                : strncmp(variable, *names, bytes) == 0 && variable[bytes] == '=')
            return true;
    }
    return false;
}

bool slurm_env_is_of_task(const char *variable)
{
    static const char *const names[] = {"SLURM_PROCID",
                                        "SLURM_LOCALID",
                                        "SLURM_NODEID",
                                        "SLURM_GTIDS",
                                        "SLURM_TASK_PID",
                                        "SLURM_STEP*",
                                        "SLURM_SRUN_COMM_*",
                                        "SLURM_LAUNCH_NODE_IPADDR",
                                        "SLURM_TOPOLOGY_ADDR*",
                                        "SLURM_CPU_BIND*",
                                        "SLURM_MEM_BIND*",
                                        "SLURM_MPI_TYPE",
                                        "SLURM_PMI*",
                                        "SLURMD_*",
                                        "PMI_*",
                                        "PMIX_*",
                                        NULL};

    return is_one_of(variable, names);
}

bool slurm_env_is_of_srun(const char *variable)
{
    static const char *const names[] = {"SLURM_NTASKS*",
                                        "SLURM_NPROCS",
                                        "SLURM_TASKS_PER_NODE",
                                        "SLURM_CPUS_PER_TASK",
                                        "SLURM_CPUS_PER_GPU",
                                        "SLURM_GPUS_PER_TASK",
                                        "SLURM_GPUS_PER_SOCKET",
                                        "SLURM_GPU_BIND",
                                        "SLURM_TRES_PER_TASK",
                                        "SLURM_DISTRIBUTION",
                                        "SLURM_HINT",
                                        "SLURM_CORE_SPEC",
                                        "SLURM_THREAD_SPEC",
                                        "SLURM_EXACT",
                                        "SLURM_WHOLE",
                                        "SLURM_EXCLUSIVE",
                                        "SLURM_LABELIO",
                                        "SLURM_UNBUFFEREDIO",
                                        "SLURM_STDINMODE",
                                        "SLURM_STDOUTMODE",
                                        "SLURM_STDERRMODE",
                                        "SLURM_KILL_BAD_EXIT",
                                        "SLURM_WAIT",
                                        "SLURM_EXPORT_ENV",
                                        "SLURM_IMMEDIATE",
                                        "SLURM_TIMELIMIT",
                                        "SLURM_NO_KILL",
                                        "SLURM_MULTI",
                                        "SLURM_ARBITRARY*",
                                        "SLURM_HOSTFILE", /* it may list a node more than once */
                                        "SLURM_RELATIVE",
                                        "SLURM_CPU_BIND*",
                                        "SLURM_MEM_BIND*",
                                        "SRUN_*",
                                        NULL};

    return is_one_of(variable, names);
}
