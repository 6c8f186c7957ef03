#include "launcherd/cause/words.h"

#include <ctype.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static bool has_any(struct text line, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (text_has(line, words[i]))
            return true;
    return false;
}

static bool starts_any(struct text line, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (text_starts(line, words[i]))
            return true;
    return false;
}

/* -- exceptions --------------------------------------------------------------------------------- */

static const char *const peers[] = {
    "Connection reset by peer",
    "Connection closed by peer",
    "Broken pipe",
    "ConnectionResetError",
    "BrokenPipeError",
    "Timed out waiting",
    "caught collective operation timeout",
    "Watchdog caught",
    "collective timeout",
    "monitoredBarrier",
    "remote process exited",
    "ncclRemoteError",
    "ncclInternalError: Internal check failed",
    "NCCL communicator was aborted",
    "communicator was aborted on rank",
    "DistNetworkError",
    "DistStoreError",
    "Socket Timeout",
    "wait timeout after",
    "recvValue failed",
    "failed to recv",
    "TCPStore",
    "connectFullMesh failed",
    "Application timeout caused pair closure",
    "Read error [",
    "Write error [",
    "unbound buffer",
    "waitForWorkers",
    "peer has gone",
    "timed out",
    "TimeoutError",
    "waiting for rank",
    "MPI_ERR_PROC_FAILED",
};

static const char *const wrappers[] = {
    "ChildFailedError",
    "CalledProcessError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "exited unexpectedly",
    "device-side assert triggered",
    "BrokenProcessPool",
    "TerminatedWorkerError",
    "died with <Signals",
    "returned non-zero exit status",
    "-- Process ",
};

static const char *const stops[] = {
    "KeyboardInterrupt", "SignalException", "torch.distributed.elastic.multiprocessing.api.Signal",
    "SystemExit",        "GeneratorExit",   "concurrent.futures._base.CancelledError",
};

static const char *const noises[] = {"queue.Empty", "_queue.Empty", "StopIteration",
                                     "asyncio.exceptions.CancelledError"};

bool cause_is_exception(struct text line)
{
    size_t at = 0;

    line = text_trim(line);
    while (at < line.count &&
           (line.bytes[at] == '_' || line.bytes[at] == '.' || (line.bytes[at] & 0x80) != 0 ||
            isalnum((unsigned char)line.bytes[at])))
        at++;
    return at > 0 && !isdigit((unsigned char)line.bytes[0]) &&
           (at == line.count || line.bytes[at] == ':');
}

enum cause_kind cause_of_exception(struct text line)
{
    line = text_trim(line);
    if (starts_any(line, stops, COUNT(stops)))
        return CAUSE_STOPPED;
    if (starts_any(line, noises, COUNT(noises)))
        return CAUSE_NOISE;
    if (has_any(line, wrappers, COUNT(wrappers)))
        return CAUSE_WRAPPER;
    if (text_has(line, "failed to pass monitoredBarrier"))
        return CAUSE_MISSING;
    return has_any(line, peers, COUNT(peers)) ? CAUSE_PEER : CAUSE_RAISED;
}

/* -- what is printed before a traceback --------------------------------------------------------- */

static const char *const asides[] = {
    "Exception ignored in",
    "Exception ignored while",
    "Exception in thread ",
    "--- Logging error ---",
    "Error in atexit._run_exitfuncs",
    "Error in sys.excepthook",
    "Exception in callback",
    "Task exception was never retrieved",
    "Future exception was never retrieved",
    "Unhandled exception in asyncio",
};

enum cause_kind cause_of_next(struct text line)
{
    line = text_trim(line);
    if (text_starts(line, "Exception in thread \"")) /* of Java, whose threads end the program */
        return CAUSE_NONE;
    if (starts_any(line, asides, COUNT(asides)))
        return CAUSE_ASIDE;
    return text_starts(line, "Original exception was") ? CAUSE_RAISED : CAUSE_NONE;
}

bool cause_is_child_next(struct text line)
{
    return text_starts(line, "Process ") && text_ends(line, ":") && line.count < 100;
}

/* -- single lines ------------------------------------------------------------------------------- */

/* Each of these says by itself what went wrong. */
static const char *const fatal[] = {
    "error while loading shared libraries:",
    "symbol lookup error:",
    "undefined symbol:",
    "command not found",
    "bad interpreter",
    "cannot execute",
    "can't open file",
    "can't find '__main__' module",
    ": No module named ",
    ": Permission denied",
    "Assertion failed",
    "*** stack smashing detected ***",
    "*** buffer overflow detected ***",
    "double free or corruption",
    "free(): ",
    "malloc(): ",
    "munmap_chunk(): ",
    "realloc(): ",
    "corrupted size vs",
    "corrupted double-linked list",
    "ERROR: AddressSanitizer",
    "ERROR: LeakSanitizer",
    "ERROR: ThreadSanitizer",
    "ERROR: MemorySanitizer",
    ": runtime error: ",
    "panicked at",
    "Unexpected bus error encountered in worker",
    "std::bad_alloc",
    "CUDA error",
    "CUDA out of memory",
    "Fatal glibc error",
    "syntax error",
    "no such option",
    "unrecognized arguments",
    "the following arguments are required",
    ": error: argument ",
    ": unbound variable",
    ": invalid option",
    "Segmentation fault",
    "Bus error",
    "Illegal instruction",
    "Floating point exception",
    "Cannot allocate memory",
    "No space left on device",
    "out of memory",
    "Out of memory",
};

/* The level of a log line that is no failure, whatever else the line says. */
static const char *const low_levels[] = {"INFO", "DEBUG", "WARN"};

/* Notes, frames and other lines that no person takes for the reason. */
static const char *const notes[] = {
    "frame #", "Warning", "warning", "warn(", "Loading", "it/s]", "s/it]", "%|", "... ",
    "Extension modules:", "nodename", "resource_tracker", "leaked", "Thread 0x",
    "Current thread 0x", "File \"", "Stack trace", "core dumped)", "During handling",
    "direct cause",
    /* how another process ended, which says nothing about why */
    "*** [", "exit status", "exit code", "exitcode", "return code", "xited with", "future: <Task",
    "Job <", "srun: error: ", "dependency resolver"};

static const char *const errors[] = {"ERROR",
                                     "rror: ",
                                     "FATAL",
                                     "fatal",
                                     "Fatal",
                                     "CRITICAL",
                                     "failed",
                                     "Failed",
                                     "cannot",
                                     "Cannot",
                                     "undefined reference",
                                     "could not",
                                     "Could not",
                                     "No such file or directory",
                                     "not found",
                                     "invalid",
                                     "Invalid",
                                     "stopping",
                                     "nan,",
                                     "NaN",
                                     "bort",
                                     "xiting",
                                     "iving up",
                                     "denied",
                                     "refused",
                                     "exception",
                                     "Exception"};

static bool is_assertion(struct text line)
{
    return text_has(line, "Assertion `") && text_has(line, "' failed");
}

/* "[W1128 18:00:00.1 ProcessGroup.cpp:1]", "[E1128 ...": the log lines of c10 and glog. */
static bool is_c10_log(struct text line, char level)
{
    return line.count > 6 && line.bytes[0] == '[' && line.bytes[1] == level &&
           isdigit((unsigned char)line.bytes[2]) && isdigit((unsigned char)line.bytes[3]);
}

static bool is_shell_line(struct text line)
{
    return text_has(line, ": line ") || text_starts(line, "bash:") || text_starts(line, "sh:") ||
           text_starts(line, "/bin/") || text_starts(line, "env:") || text_starts(line, "exec:");
}

/* "validation error: 0.031" */
static bool is_metric(struct text line)
{
    const size_t at = text_find(line, "rror: ");

    return at + 6 < line.count && isdigit((unsigned char)line.bytes[at + 6]);
}

enum cause_kind cause_of_line(struct text whole)
{
    const struct text line = text_trim(whole);
    const bool is_indented = whole.count > 0 && (whole.bytes[0] == ' ' || whole.bytes[0] == '\t');

    if (line.count == 0 || is_c10_log(line, 'W') || is_c10_log(line, 'I') ||
        has_any(line, low_levels, COUNT(low_levels)))
        return CAUSE_NONE;
    if (is_assertion(line) || (has_any(line, fatal, COUNT(fatal)) && !is_c10_log(line, 'E')) ||
        (is_shell_line(line) && text_has(line, "No such file or directory")))
        return has_any(line, peers, COUNT(peers)) ? CAUSE_PEER : CAUSE_FATAL;
    if (has_any(line, notes, COUNT(notes)) || text_ends(line, "..."))
        return CAUSE_NONE;
    if (has_any(line, peers, COUNT(peers)))
        return CAUSE_PEER;
    if (has_any(line, errors, COUNT(errors)) && !is_metric(line))
        return CAUSE_ERROR;
    return is_indented ? CAUSE_NONE : CAUSE_LAST; /* a part of something */
}

/* -- frames ------------------------------------------------------------------------------------- */

bool cause_is_library(struct text frame)
{
    static const char *const parts[] = {"site-packages/", "dist-packages/", "/lib/python",
                                        "/lib64/python",  "<frozen ",       "\"<string>\""};

    return has_any(frame, parts, COUNT(parts));
}
