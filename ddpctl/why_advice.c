#include "ddpctl/why_advice.h"

#include <signal.h>
#include <string.h>

#define WORDS_MAX 5
#define SHM_ADVICE                                                                                 \
    "/dev/shm is full there: df -h /dev/shm; fewer DataLoader workers, smaller batches, or a "     \
    "larger one (--shm-size of a container)"

/* The first row of which a word stands in the cause, the exception or the last lines. The cause comes first: an advice for it is
 * nearer than one for what stands somewhere in the last lines. */
static const struct {
    const char *words[WORDS_MAX];
    const char *advice;
} rows[] = {
    {{"CUDA out of memory", "OutOfMemoryError", "CUBLAS_STATUS_ALLOC_FAILED"},
     "the GPU's memory is full: smaller batches, mixed precision, or what else is on that GPU "
     "(nvidia-smi there)"},
    {{"allocate shared memory", "shared memory (shm)", "insufficient shared memory",
      "bus error encountered in worker"},
     SHM_ADVICE},
    {{"Too many open files", "unable to open shared memory object", "received 0 items of ancdata"},
     "too many files are open: ulimit -n before ddpctl submit raises the limit, or "
     "torch.multiprocessing.set_sharing_strategy('file_system')"},
    {{"No space left on device", "inline_container.cc", "PytorchStreamWriter failed writing"},
     "a disk is full: df -h on that node says which, and whether the checkpoint has space"},
    {{"Disk quota exceeded"}, "the quota of the user is used up: quota -s on that node"},
    {{"Stale file handle"},
     "the NFS server has removed or moved that file: mount it anew on that node"},
    {{"is killed by signal: Killed", "DataLoader worker (pid"},
     "a DataLoader worker has died, often for want of memory (journalctl -k on that node): fewer "
     "workers, smaller "
     "batches; num_workers=0 shows its own error"},
    {{"DataLoader timed out"},
     "a DataLoader worker stands still: num_workers=0 or py-spy dump on that node shows where"},
    {{"Killed  ", "MemoryError", "Cannot allocate memory", "can't allocate memory",
      "std::bad_alloc"},
     "the memory of the node or of the job's limit (--job-memory, ulimit -v) is used up: smaller "
     "batches and fewer "
     "DataLoader workers use less"},
    {{"BdbQuit", "EOFError: EOF when reading a line"},
     "the program reads its stdin, and has none: ddpctl run --stdin 0, or --tty --stdin 0 for a "
     "debugger"},
    {{"EOFError", "unexpected EOF", "UnpicklingError", "PytorchStreamReader failed"},
     "the checkpoint that it loads is not whole: an older one, or one that was written to a new "
     "name and renamed"},
    {{"Torch not compiled with CUDA", "No CUDA GPUs are available", "Found no NVIDIA driver",
      "torch.cuda.is_available() is False", "at least one CUDA device"},
     "the program wants a GPU and sees none: ddpctl nodes shows which nodes have GPUs, "
     "torch.load(map_location='cpu') "
     "and the gloo backend need none"},
    {{"environment variable MASTER_ADDR expected"},
     "the program was started without the variables of the launcher, such as MASTER_ADDR: does it "
     "or its wrapper clear the environment (env -i, sudo)?"},
    {{"failed to listen on any local network address", "Address already in use", "EADDRINUSE"},
     "a port is in use there: ss -tlnp names its process; leave MASTER_PORT to the launcher, which "
     "chooses a free one"},
    {{"clients joined", "waiting for clients"},
     "fewer ranks came than WORLD_SIZE says: does the program set WORLD_SIZE or RANK itself, or "
     "start only some of them?"},
    {{"find_unused_parameters", "finished reduction in the prior iteration"},
     "a parameter got no gradient: DistributedDataParallel(..., find_unused_parameters=True), or "
     "leave it out of the model"},
    {{"client socket has timed out", "client socket has failed to connect"},
     "the node of rank 0 is not reached: does its name resolve to an address that this node "
     "reaches, and does a firewall drop the port "
     "(ddpctl doctor)? A program that makes a store of its own needs --no-store"},
    {{"MPI_Init"},
     "ranks that ddpctl starts are no MPI world: run mpirun as the program (docs/from-mpi.md), or "
     "meet by torch.distributed"},
    {{"Timed out waiting", "caught collective operation timeout", "failed to pass monitoredBarrier",
      "DistStoreError"},
     "a rank waited in vain for another one in a collective: ddpctl why --stacks, while it hangs, "
     "shows where each rank stands"},
    {{"error while loading shared libraries"},
     "a shared library is missing there: LD_LIBRARY_PATH of the job (ddpctl submit --env), or "
     "install it on that node"},
    {{"ModuleNotFoundError", "No module named"},
     "install the module into the Python of the job, on each node; which python3 there says which "
     "one it is"},
    {{"command not found", ": not found"},
     "PATH of the job is that of the shell that submitted it: is the program installed on that "
     "node?"},
    {{"Permission denied (publickey"},
     "ssh has no key there that the other side takes: ssh-add -l, or the key files of the user of "
     "the job"},
    {{"Permission denied"},
     "the user of the job may not do that there: ls -l, and chmod +x for a program"},
    {{"init_fs_encoding", "PYTHONHOME"},
     "PYTHONHOME or PYTHONPATH of the job belongs to another Python: ddpctl submit --env "
     "PYTHONHOME="},
    {{"UnicodeEncodeError: 'ascii'"},
     "the job has no UTF-8 locale: --env PYTHONIOENCODING=utf-8 or --env LC_ALL=C.UTF-8"},
};

static const char *advice_in(const char *text)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t k = 0; k < WORDS_MAX && rows[i].words[k] != NULL; k++)
            if (strstr(text, rows[i].words[k]) != NULL)
                return rows[i].advice;
    return NULL;
}

static bool is_crash(uint32_t signal)
{
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE;
}

static bool has(const struct part_failure *failure, const char *words)
{
    return strstr(failure->cause, words) != NULL || strstr(failure->error, words) != NULL ||
           strstr(failure->tail, words) != NULL;
}

/* The shim has seen it, and the rank has failed as one does then: a write beyond the room of a mapping is SIGBUS. */
static bool is_shm_full(const struct part_failure *failure)
{
    return has(failure, "/dev/shm of node ") &&
           (failure->signal == SIGBUS || has(failure, "No space left on device"));
}

const char *why_advice(const struct part_failure *failure)
{
    const char *advice, *more = strstr(failure->cause, ": ");

    if (failure->oom)
        return "its limit is --job-memory of the launcherd there; smaller batches and fewer "
               "DataLoader workers use less";
    if (failure->signal == SIGKILL && failure->class == FAILURE_PROGRAM)
        return "nothing of this system killed it: an operator, or the kernel for want of memory "
               "(journalctl -k on that node)";
    if (is_shm_full(failure))
        return SHM_ADVICE;
    if (is_crash(failure->signal))
        return strstr(failure->cause, "Fatal Python error") == NULL &&
                       strstr(failure->tail, "Fatal Python error") == NULL
                   ? "a crash in native code: with --env PYTHONFAULTHANDLER=1 Python prints where "
                     "it stood"
                   : NULL;
    if (failure->class != FAILURE_PROGRAM)
        return strstr(failure->cause, "No space left on device") != NULL
                   ? "a disk is full: df -h on that node says which"
                   : NULL;
    advice = advice_in(failure->cause);
    if (advice == NULL)
        advice = advice_in(failure->error);
    /* What stands in the last lines belongs to the cause only if none is named. */
    if (advice != NULL || failure->error[0] != '\0' ||
        (more != NULL && strstr(failure->tail, more + 2) != NULL))
        return advice; /* the cause is one of the last lines: the others are about something else */
    return advice_in(failure->tail);
}
