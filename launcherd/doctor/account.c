/* Checks the account of the question: whether it may run jobs here, where it can write, and its
 * Python. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcherd/doctor/doctor_parts.h"
#include "launcherd/process/spawn.h"
#include "launcherd/shim/preflight.h"
#include "launcherd/shim/worker_env.h"

#define ANSWER_BYTES_MAX 8192u

/* Prints a line NAME=VALUE for each version. It asks NVML whether there are GPUs, because
 * torch.cuda would create a context on a GPU that a job uses. */
static const char versions_script[] =
    "import sys, os\n"
    "os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'] = '1'\n"
    "print('python=' + (sys.executable or ''))\n"
    "print('python_version=' + sys.version.split()[0], flush=True)\n"
    "import torch\n"
    "print('torch=' + torch.__version__)\n"
    "print('cuda=' + (torch.version.cuda or ''))\n"
    "if torch.version.cuda:\n"
    "    print('nccl=' + '.'.join(map(str, torch.cuda.nccl.version())))\n"
    "    print('cudnn=' + str(torch.backends.cudnn.version()))\n"
    "print('torch_sees_gpu=' + str(int(torch.cuda.is_available())))\n";

/* Makes a start order like that of a job of this question, for functions that need one. */
static struct msg_start start_of(const struct doctor *doctor, const struct msg_text_list *argv)
{
    const struct msg_node_ask *ask = doctor->ask;
    const bool has_folder = ask->cwd[0] == '/';

    return (struct msg_start){.cluster = "doctor",
                              .job_id = ask->job_id > 0 ? ask->job_id : 1,
                              .generation = 1,
                              .name = "doctor",
                              .user = ask->user,
                              .node_count = 1,
                              .local_count = 1,
                              .world = 1,
                              .slot_mask = 1,
                              .cwd = has_folder ? ask->cwd : "/",
                              .argv = *argv,
                              .env = ask->env};
}

static struct worker_env_facts env_of(const struct doctor *doctor, const struct msg_start *start,
                                      const struct account *account)
{
    return (struct worker_env_facts){.start = start,
                                     .master_addr = "",
                                     .node_name = doctor->name,
                                     .node_address = doctor->address,
                                     .hides_gpus = doctor->gpus == 0,
                                     .gpus = doctor->gpus,
                                     .token = "",
                                     .error_dir = "/tmp",
                                     .user = account->name,
                                     .home = account->home,
                                     .shell = account->shell};
}

void doctor_account(const struct doctor *doctor, struct node_facts *facts)
{
    static const char *const nothing[] = {"true"};
    const struct msg_node_ask *ask = doctor->ask;
    const struct msg_text_list argv =
        ask->argv.count > 0 ? ask->argv : (struct msg_text_list){nothing, 1};
    struct preflight_result result = {0};
    struct preflight_more more = {.step = NULL};
    const struct account none = {.home = "/", .shell = "/bin/sh"};
    struct msg_start start = start_of(doctor, &argv);
    struct worker_env_facts env = env_of(doctor, &start, &none);
    struct account own;
    struct err err = {0};

    (void)snprintf(facts->user, sizeof facts->user, "%.63s", ask->user);
    if (account_own(&own, &err) != STATUS_OK) {
        (void)snprintf(facts->user_problem, sizeof facts->user_problem, "%s", err.text);
        return;
    }
    if (doctor->doing != NULL)
        more.step = &doctor->doing->step;
    preflight_check(&doctor->policy, &own, &env, &more, &result);
    if (more.step != NULL)
        atomic_store(more.step, -1);
    if (result.account.name[0] == '\0') {
        (void)snprintf(facts->user_problem, sizeof facts->user_problem, "%s", result.text);
        return;
    }
    facts->uid = result.account.uid;
    if (ask->job_id > 0)
        (void)snprintf(facts->job_problem, sizeof facts->job_problem, "%s", result.text);
    doctor_disk(doctor, "tmp", "/tmp", facts); /* this process runs as the account now */
    if (ask->cwd[0] == '/')
        doctor_disk(doctor, "job", ask->cwd, facts);
}

/* -- its Python -- */

/* The Python that would run the job's script: the job's program, if that is a Python. NULL:
 * none. */
static const char *python_of(const struct msg_node_ask *ask)
{
    const char *program, *name;

    if (ask->job_id == 0)
        return "python3";
    program = ask->argv.count > 0 ? ask->argv.items[0] : "";
    name = strrchr(program, '/') != NULL ? strrchr(program, '/') + 1 : program;
    if (strncmp(name, "python", 6) == 0)
        return program;
    return strlen(name) > 3 && strcmp(name + strlen(name) - 3, ".py") == 0 ? "python3" : NULL;
}

static void take_line(const char *line, size_t line_bytes, struct node_facts *facts)
{
    const struct {
        const char *name;
        char *text;
        size_t text_bytes;
    } texts[] = {
        {"python=", facts->python, sizeof facts->python},
        {"python_version=", facts->python_version, sizeof facts->python_version},
        {"torch=", facts->torch, sizeof facts->torch},
        {"cuda=", facts->cuda, sizeof facts->cuda},
        {"nccl=", facts->nccl, sizeof facts->nccl},
        {"cudnn=", facts->cudnn, sizeof facts->cudnn},
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        size_t name_bytes = strlen(texts[i].name);

        if (line_bytes < name_bytes || strncmp(line, texts[i].name, name_bytes) != 0)
            continue;
        (void)snprintf(texts[i].text, texts[i].text_bytes, "%.*s", (int)(line_bytes - name_bytes),
                       line + name_bytes);
        return;
    }
    if (line_bytes == 16 && strncmp(line, "torch_sees_gpu=", 15) == 0)
        facts->torch_sees_gpu = line[15] == '1';
    else if (line_bytes > 0 && facts->torch_sees_gpu < 0) /* the last line of an exception */
        (void)snprintf(facts->python_problem, sizeof facts->python_problem, "%.*s",
                       (int)(line_bytes < 250 ? line_bytes : 250), line);
}

void doctor_python_lines(const char *lines, struct node_facts *facts)
{
    while (*lines != '\0') {
        size_t line_bytes = strcspn(lines, "\n");

        take_line(lines, line_bytes, facts);
        lines += line_bytes + (lines[line_bytes] == '\n');
    }
    if (facts->torch_sees_gpu >= 0)
        facts->python_problem[0] = '\0'; /* its other output was no exception */
}

static void read_answer(int fd, struct node_facts *facts)
{
    static char lines[ANSWER_BYTES_MAX];
    char rest[4096];
    size_t byte_count = 0;
    ssize_t got;

    while ((got = read(fd, rest, sizeof rest)) > 0) {
        size_t room = sizeof lines - 1 - byte_count;
        size_t kept = (size_t)got < room ? (size_t)got : room;

        memcpy(lines + byte_count, rest, kept);
        byte_count += kept;
    }
    lines[byte_count] = '\0';
    doctor_python_lines(lines, facts);
}

static void run_python(const struct doctor *doctor, const char *python,
                       const struct account *account, bool as_self, struct node_facts *facts)
{
    const char *const words[] = {python, "-c", versions_script};
    char *argv[] = {(char *)(uintptr_t)python, "-c", (char *)(uintptr_t)versions_script, NULL};
    const struct msg_text_list command = {words, 3};
    struct msg_start start = start_of(doctor, &command);
    struct worker_env_facts env = env_of(doctor, &start, account);
    struct arena arena = {0};
    char **envp = worker_env_build(&env, 0, &arena);
    struct spawn_order order = {.argv = argv,
                                .envp = envp,
                                .cwd = start.cwd,
                                .user = as_self ? NULL : account,
                                .stdin_fd = open("/dev/null", O_RDONLY | O_CLOEXEC),
                                .extra_fd = -1,
                                .is_job = true,
                                .dies_with_parent = true};
    struct err err = {0};
    int ends[2], exit_code;
    pid_t pid;

    if (envp == NULL || order.stdin_fd < 0 || pipe2(ends, O_CLOEXEC) != 0)
        return;
    order.search = worker_env_path(envp);
    order.stdout_fd = order.stderr_fd = ends[1];
    if (doctor->doing != NULL)
        atomic_store(&doctor->doing->step, PREFLIGHT_CWD);
    if (spawn_process(&order, &pid, &exit_code, &err) != STATUS_OK) {
        (void)snprintf(facts->python_problem, sizeof facts->python_problem, "%.60s: %.180s", python,
                       err.text);
        return;
    }
    if (doctor->doing != NULL)
        atomic_store(&doctor->doing->step, -1);
    (void)close(ends[1]);
    read_answer(ends[0], facts);
}

void doctor_python(const struct doctor *doctor, struct node_facts *facts)
{
    const char *python = python_of(doctor->ask);
    struct account own, account;
    struct err err = {0};
    bool as_self;

    if (python == NULL || account_own(&own, &err) != STATUS_OK ||
        account_choose(&doctor->policy, &own, doctor->ask->user, &account, &as_self, &err) !=
            STATUS_OK)
        return; /* the part "account" reports why */
    run_python(doctor, python, &account, as_self, facts);
    account_free(&account);
}
