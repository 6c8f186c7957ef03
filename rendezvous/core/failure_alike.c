#include "rendezvous/core/failure_alike.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/fnv.h"
#include "common/text_view.h"
#include "rendezvous/core/failure.h"
#include "rendezvous/core/restart.h"
#include "rendezvous/core/state.h"

/* -- what makes two failures the same ------------------------------------------------------------ */

/* What the machine or the network may cause, and what may be over a minute later. */
static const char *const passing[] = {
    "Connection refused",
    "Connection reset",
    "ConnectionError",
    "Max retries exceeded",
    "HTTP",
    "imed out",
    "imeout",
    "Address already in use",
    "Temporary failure in name resolution",
    "No route to host",
    "unreachable",
    "Resource temporarily unavailable",
    "can't start new thread",
    "Cannot allocate memory",
    "MemoryError",
    "Stale file handle",
    "Input/output error",
    "No space left on device",
    "Device or resource busy",
    "CUDA error",
    "NCCL",
};

static bool may_pass(struct text line)
{
    for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++)
        if (text_has(line, passing[i]))
            return true;
    return false;
}

/* Adds a line whose numbers do not count: steps, times, addresses, ports and process ids differ in each generation. */
static uint64_t add_words(uint64_t hash, struct text line)
{
    for (size_t i = 0; i < line.count;) {
        const bool is_hex = i + 2 < line.count && line.bytes[i] == '0' && line.bytes[i + 1] == 'x';
        size_t end = i + (is_hex ? 2 : 0);

        while (end < line.count && (is_hex ? isxdigit((unsigned char)line.bytes[end])
                                           : isdigit((unsigned char)line.bytes[end])))
            end++;
        hash = fnv_add(hash, end > i ? "0" : line.bytes + i, 1);
        i = end > i ? end : i + 1;
    }
    return hash;
}

static uint64_t add_line(uint64_t hash, struct text line)
{
    return may_pass(line) ? fnv_add(hash, line.bytes, line.count) : add_words(hash, line);
}

/* The last line of output that is not empty, without PyTorch's prefix "[rank3]: ". */
static struct text last_line(const char *tail)
{
    const struct text all = text_trim(text_of(tail));
    struct text line = all;

    for (size_t at = 0; at < all.count;)
        line = text_line(all, at, &at);
    return text_trim(text_without_ranks(line));
}

/* -- the same exception --------------------------------------------------------------------------- */

/* "File "/home/ada/train.py", line 9, in main": what follows the folders. */
static struct text place_of(struct text frame)
{
    size_t at = text_find(frame, "\", line ");

    while (at > 0 && frame.bytes[at - 1] != '/' && frame.bytes[at - 1] != '"')
        at--;
    return text_from(frame, at);
}

uint32_t failure_exception_mark(const char *error)
{
    const struct text all = text_of(error);
    struct text place = {.count = 0}, exception = {.count = 0};
    uint64_t mark = FNV_START;

    for (size_t at = 0; at < all.count;) {
        const struct text line = text_line(all, at, &at), trimmed = text_trim(line);

        if (text_starts(trimmed, "File \"") && text_has(trimmed, "\", line ")) {
            place = place_of(trimmed);
            exception.count = 0;
        } else if (place.count > 0 && exception.count == 0 && line.bytes[0] != ' ') {
            exception = trimmed;
        }
    }
    if (place.count == 0 || exception.count == 0 || may_pass(all))
        return 0;
    mark = fnv_add(mark, place.bytes, place.count);
    mark = add_words(mark, exception);
    return (uint32_t)(mark ^ mark >> 32) | 1;
}

/* -- a file that is not there ---------------------------------------------------------------------- */

/* Whether an interpreter or a shell did not find the program that it was to run. */
static bool names_no_program(const struct rdzv_record *record, struct text text)
{
    if (record->failed_exit == 1) /* python -m, which raises nothing */
        return text_has(text, ": No module named ") && !text_has(text, "Error: ");
    if (record->failed_exit == 2)
        return text_has(text, "can't open file") && text_has(text, "No such file or directory");
    return record->failed_exit == 127 &&
           (text_has(text, "No such file or directory") || text_has(text, "not found"));
}

bool failure_is_for_want_of_program(const struct rdzv_record *record)
{
    return record->failed_class == FAILURE_PROGRAM && record->failed_signal == 0 &&
           (names_no_program(record, text_of(record->reason)) ||
            names_no_program(record, last_line(record->tail)));
}

/* -- programs that cannot work --------------------------------------------------------------------- */

#define EARLY_NEVER 2u /* early_failure: the program has run for longer once, so it can work */

/* How long all ranks had run when the first failed; 0: they never all ran. */
static uint64_t ran_us(const struct job *job)
{
    return job->running_at_us == UINT64_MAX || job->failed_at_us < job->running_at_us
               ? 0
               : job->failed_at_us - job->running_at_us;
}

/* A hash of exit code and last line, with 1 in the low two bits; 0: this failure does not
 * count. */
static uint64_t early_mark(const struct job *job)
{
    const struct rdzv_record *record = &job->record;
    const struct text line = last_line(record->tail);
    uint64_t mark = FNV_START ^ (uint64_t)record->failed_exit;

    if (record->failed_rank < 0 || record->failed_signal != 0 || record->failed_exit <= 0 ||
        record->failed_exit >= 126 || record->step > 0 || record->checkpoint_step > 0 ||
        line.count == 0)
        return 0;
    mark = add_line(mark, line);
    return (mark >> 1 & ~(uint64_t)3) | 1; /* the store's integers are signed */
}

bool failure_early(struct rdzv *rdzv, struct job *job, char why[REASON_BYTES_MAX])
{
    struct rdzv_record *record = &job->record;
    uint64_t mark, before = record->early_failure;
    bool is_same;
    unsigned long long seconds = ran_us(job) / 1000000 + 1;

    if (ran_us(job) > EARLY_US)
        record->early_failure = EARLY_NEVER;
    if (record->failed_class != FAILURE_PROGRAM || record->early_failure == EARLY_NEVER)
        return false;
    mark = early_mark(job);
    is_same = mark != 0 && (before | 2) == (mark | 2);
    record->early_failure = is_same ? mark | 2 : mark;
    if (!is_same)
        record->alike_ms = rdzv->out.wall_ms;
    job_set_dirty(rdzv, job);
    if (mark != 0 && !record->restarts_given && job_world(job) == 1 &&
        strstr(record->reason, ": FileNotFoundError: ") != NULL) {
        /* no other rank was to make it */
        (void)snprintf(why, REASON_BYTES_MAX, "no file of that name exists");
        return true;
    }
    if (!is_same || (before & 2) == 0)
        return false;
    (void)snprintf(
        why, REASON_BYTES_MAX,
        "exit %d came within %llu s of the start three times in a row, with the same last line",
        record->failed_exit, seconds);
    return true;
}

#define SAME_MAX 3u
#define EXCEPTIONS_MAX 2u /* one can come from what the machine lacks for a second */

/* A hash of how the program failed; 0: this failure does not count. */
static uint64_t same_mark(const struct job *job)
{
    const struct rdzv_record *record = &job->record;
    const struct text line = last_line(record->tail);
    const uint32_t signal = record->failed_signal;
    const bool is_from_outside = signal == SIGKILL || signal == SIGTERM || signal == SIGINT ||
                                 signal == SIGHUP || signal == SIGUSR1 || signal == SIGUSR2;
    uint64_t mark = FNV_START ^ (uint64_t)record->failed_exit << 32 ^
                    (uint64_t)record->failed_rank << 8 ^ signal;

    if (!failure_is_program(record->failed_class) || record->failed_rank < 0 || is_from_outside ||
        record->told_generation != record->generation || record->step == 0 ||
        (line.count == 0 && !failure_is_crash(record)))
        return 0;
    if (record->failed_class != FAILURE_HANG)
        mark = add_line(mark, line);
    return (mark >> 1) | 1; /* the store's integers are signed */
}

/* Whether the newest failure is the one before it again. */
static bool is_again(const struct job *job, uint64_t mark)
{
    const struct rdzv_record *record = &job->record;
    const uint64_t apart = record->step > record->same_step ? record->step - record->same_step
                                                            : record->same_step - record->step;

    if (mark == 0 || mark != record->same_failure)
        return false;
    return mark == job->exception_mark ? record->restarts_without_progress > 0
                                       : apart <= job->hang.stride;
}

bool failure_same(struct rdzv *rdzv, struct job *job, char why[REASON_BYTES_MAX])
{
    struct rdzv_record *record = &job->record;
    const bool is_exception = record->failed_class == FAILURE_PROGRAM && job->exception_mark != 0;
    const uint64_t mark = is_exception ? job->exception_mark : same_mark(job);

    if (is_again(job, mark))
        record->same_count++;
    else
        record->same_count = mark != 0 ? 1 : 0;
    if (record->same_count == 1)
        record->alike_ms = rdzv->out.wall_ms;
    record->same_failure = mark;
    record->same_step = record->step;
    job_set_dirty(rdzv, job);
    if (record->same_count < (is_exception && !record->restarts_given ? EXCEPTIONS_MAX : SAME_MAX))
        return false;
    if (is_exception)
        (void)snprintf(why, REASON_BYTES_MAX,
                       "the same exception came at the same line %s in a row",
                       record->same_count == 2 ? "twice" : "three times");
    else
        (void)snprintf(why, REASON_BYTES_MAX,
                       "rank %d failed at step %llu in the same way three times in a row",
                       record->failed_rank, (unsigned long long)record->step);
    return true;
}
