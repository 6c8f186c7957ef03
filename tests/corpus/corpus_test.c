/* What is named as the cause of recorded failures (README.md), beside the answer of a person. corpus_test DIR [-v] [NAME...]:
 * prints a line for each one that differs, and the score. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "ddpctl/why_advice.h"
#include "launcherd/cause/causes.h"
#include "launcherd/cause/first.h"

#define RANKS_MAX 8
#define TEXTS_MAX 8
#define RIGHT_AT_LEAST 95 /* percent */
#define HINTS_AT_LEAST 80 /* percent */
#define STOPPED_AFTER                                                                              \
    0.25 /* seconds from the first failure: later signals are those of the launcher's stop */
#define CLEAR_AFTER 0.5 /* FAILURES_READ_MS */

struct answer {
    int rank; /* -1: any */
    char text[512];
};

struct job {
    const char *name;
    uint32_t ranks, answer_count, wrong_count, order;
    struct answer answers[TEXTS_MAX];
    char wrong[TEXTS_MAX][256], hints[TEXTS_MAX][64];
    uint32_t hint_count;
    struct causes *causes; /* [ranks] */
    struct cause_end ends[RANKS_MAX];
    uint32_t orders[RANKS_MAX];
    double failed_s; /* < 0: none has */
};

static void fail(const char *name, const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", name, what);
    exit(2);
}

/* "\xNN" and "\\"; a backslash at the end: the line has no end. Returns the number of bytes. */
static size_t unescape(const char *from, char *to, bool *is_ended)
{
    size_t count = 0;

    *is_ended = true;
    for (; *from != '\0'; from++) {
        char hex[3] = "";

        if (*from != '\\') {
            to[count++] = *from;
        } else if (from[1] == 'x' && from[2] != '\0' && from[3] != '\0') {
            memcpy(hex, from + 2, 2);
            to[count++] = (char)strtoul(hex, NULL, 16);
            from += 3;
        } else if (from[1] == '\\') {
            to[count++] = *++from;
        } else {
            *is_ended = false;
        }
    }
    return count;
}

static void take_answer(struct job *job, const char *text)
{
    struct answer *answer = &job->answers[job->answer_count++];
    char bytes[4096];
    const char *colon = strstr(text, ": ");
    bool is_ended;

    if (job->answer_count > TEXTS_MAX || colon == NULL || strlen(text) > sizeof bytes)
        fail(job->name, "its answer cannot be read");
    answer->rank = strncmp(text, "any", 3) == 0 ? -1 : (int)strtol(text + 5, NULL, 10);
    utf8_printable(bytes, unescape(colon + 2, bytes, &is_ended), answer->text, 110);
    if (strncmp(answer->text, "what():", 7) == 0)
        memmove(answer->text, answer->text + 9, strlen(answer->text + 9) + 1);
    if (strlen(answer->text) > 3 && strcmp(answer->text + strlen(answer->text) - 3, "...") == 0)
        answer->text[strlen(answer->text) - 3] = '\0';
    if (answer->text[0] != '\0' && answer->text[strlen(answer->text) - 1] == ':')
        answer->text[strlen(answer->text) - 1] = '\0';
}

static void take_head(struct job *job, const char *line)
{
    if (strncmp(line, "ranks: ", 7) == 0) {
        job->ranks = (uint32_t)strtoul(line + 7, NULL, 10);
        job->causes = calloc(job->ranks, sizeof *job->causes);
        if (job->ranks == 0 || job->ranks > RANKS_MAX || job->causes == NULL)
            fail(job->name, "so many ranks are not tried here");
        for (uint32_t i = 0; i < job->ranks; i++) {
            causes_open(&job->causes[i], false);
            job->ends[i].is_running = true;
        }
    } else if (strncmp(line, "answer: ", 8) == 0) {
        take_answer(job, line + 8);
    } else if (strncmp(line, "# or: ", 6) == 0) {
        take_answer(job, line + 6);
    } else if (strncmp(line, "hint: ", 6) == 0 && job->hint_count < TEXTS_MAX) {
        (void)snprintf(job->hints[job->hint_count++], sizeof job->hints[0], "%s", line + 6);
    } else if (strncmp(line, "not: ", 5) == 0 && job->wrong_count < TEXTS_MAX) {
        (void)snprintf(job->wrong[job->wrong_count++], sizeof job->wrong[0], "%s", line + 5);
    }
}

static enum cause_kind kind_of(const struct job *job, uint32_t rank, struct cause *cause)
{
    *cause = (struct cause){.kind = CAUSE_NONE};
    (void)causes_best(&job->causes[rank], &job->ends[rank], cause);
    return cause->kind;
}

static void list_ranks(const struct job *job, struct cause_rank ranks[RANKS_MAX])
{
    struct cause cause;

    for (uint32_t i = 0; i < job->ranks; i++) {
        ranks[i] = (struct cause_rank){
            .kind = kind_of(job, i, &cause),
            .is_running = job->ends[i].is_running,
            .has_failed = !job->ends[i].is_running &&
                          (job->ends[i].exit_code != 0 || job->ends[i].signal != 0),
            .order = job->orders[i],
            .raised_us = INT64_MAX,
        };
        if (cause.kind == CAUSE_RAISED)
            ranks[i].raised_us = (int64_t)cause.began_us;
    }
}

/* False: the launcher has seen enough to name the cause. */
static bool take_event(struct job *job, char *line)
{
    static char bytes[1 << 20];
    char *rest;
    const double at_s = strtod(line, &rest);
    const uint32_t rank = (uint32_t)strtoul(rest, &rest, 10);
    struct cause_rank ranks[RANKS_MAX];
    bool is_ended;

    if (job->failed_s >= 0 && at_s > job->failed_s + CLEAR_AFTER)
        return false;
    if (strncmp(rest, " out|", 5) == 0 || strncmp(rest, " err|", 5) == 0) {
        size_t count = unescape(rest + 5, bytes, &is_ended);

        if (is_ended)
            bytes[count++] = '\n';
        causes_add(&job->causes[rank], rest[1] == 'e', (struct text){bytes, count},
                   (uint64_t)(at_s * 1e6));
        return true;
    }
    if (strncmp(rest, " signal ", 8) == 0 && job->failed_s >= 0 &&
        at_s > job->failed_s + STOPPED_AFTER)
        return true;
    if (strncmp(rest, " exit ", 6) == 0)
        job->ends[rank] = (struct cause_end){.exit_code = (int32_t)strtol(rest + 6, NULL, 10)};
    else
        job->ends[rank] = (struct cause_end){.signal = (uint32_t)strtoul(rest + 8, NULL, 10)};
    job->orders[rank] = job->order++;
    if (job->ends[rank].exit_code == 0 && job->ends[rank].signal == 0)
        return true;
    if (job->failed_s < 0)
        job->failed_s = at_s;
    list_ranks(job, ranks);
    return cause_may_become_clear(ranks, job->ranks);
}

static void read_job(struct job *job, const char *path)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    ssize_t got;
    bool is_head = true, goes_on = true;

    if (file == NULL)
        fail(path, "cannot be read");
    while (goes_on && (got = getline(&line, &room, file)) > 0) {
        if (line[got - 1] == '\n')
            line[got - 1] = '\0';
        if (is_head && strcmp(line, "---") == 0)
            is_head = false;
        else if (is_head)
            take_head(job, line);
        else
            goes_on = take_event(job, line);
    }
    free(line);
    (void)fclose(file);
}

static bool is_right(const struct job *job, int32_t rank, const struct cause *cause)
{
    for (uint32_t i = 0; i < job->answer_count; i++) {
        const struct answer *answer = &job->answers[i];

        if (answer->rank != -1 && answer->rank != rank)
            continue;
        if (strcmp(answer->text, "-") == 0 ? cause->kind == CAUSE_NONE
                                           : strstr(cause->line, answer->text) != NULL)
            return true;
    }
    return false;
}

static bool is_wrong_with_confidence(const struct job *job, const struct cause *cause)
{
    for (uint32_t i = 0; i < job->wrong_count; i++)
        if (strstr(cause->line, job->wrong[i]) != NULL)
            return true;
    return cause->kind >= CAUSE_FATAL;
}

struct score {
    uint32_t all, right, wrong, hints, hints_missed;
};

/* Whether the advice has each word that a person wants in it. */
static void try_hints(const struct job *job, int32_t rank, const struct cause *cause,
                      struct score *score)
{
    struct part_failure failure = {.class = FAILURE_PROGRAM, .cause = cause->line};
    char tail[TAIL_BYTES_MAX] = "";
    const char *advice;

    if (rank >= 0) {
        causes_tail(&job->causes[rank], 5, tail);
        failure.signal = job->ends[rank].signal;
    }
    failure.error = cause->kind != CAUSE_NONE ? cause->text : "";
    failure.tail = tail;
    advice = why_advice(&failure);
    for (uint32_t i = 0; i < job->hint_count; i++) {
        score->hints++;
        if (advice != NULL && strstr(advice, job->hints[i]) != NULL)
            continue;
        score->hints_missed++;
        printf("# %s: no \"%s\" in the advice: %s\n", job->name, job->hints[i],
               advice != NULL ? advice : "-");
    }
}

static void try_job(const char *folder, const char *name, struct score *score)
{
    struct job job = {.name = name, .failed_s = -1};
    struct cause_rank ranks[RANKS_MAX];
    struct cause cause = {.kind = CAUSE_NONE};
    char path[4096];
    int32_t first;

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    read_job(&job, path);
    list_ranks(&job, ranks);
    first = cause_first(ranks, job.ranks);
    if (first >= 0)
        (void)kind_of(&job, (uint32_t)first, &cause);
    try_hints(&job, first, &cause, score);
    score->all++;
    if (is_right(&job, first, &cause)) {
        score->right++;
    } else {
        const bool is_wrong = is_wrong_with_confidence(&job, &cause);

        score->wrong += is_wrong;
        printf("# %s%s\n#   person: rank %d: %s\n#   here:   rank %d: %s (kind %d)\n",
               is_wrong ? "WRONG " : "", name, job.answers[0].rank, job.answers[0].text, first,
               cause.line, (int)cause.kind);
    }
    free(job.causes);
}

static int is_case(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name);

    return length > 5 && strcmp(entry->d_name + length - 5, ".case") == 0;
}

int main(int argc, char **argv)
{
    struct score score = {0};
    struct dirent **entries;
    const int count = argc > 1 ? scandir(argv[1], &entries, is_case, alphasort) : -1;

    if (count <= 0)
        fail(argc > 1 ? argv[1] : "corpus_test", "give a folder of cases");
    for (int i = 0; i < count; i++) {
        if (argc < 3 || strcmp(argv[2], entries[i]->d_name) == 0)
            try_job(argv[1], entries[i]->d_name, &score);
        free(entries[i]);
    }
    free(entries);
    printf("%u of %u right (%u %%), %u wrong with confidence; %u of %u hints\n", score.right,
           score.all, 100 * score.right / (score.all + (score.all == 0)), score.wrong,
           score.hints - score.hints_missed, score.hints);
    return 100 * score.right < RIGHT_AT_LEAST * score.all || score.wrong > 0 ||
           100 * (score.hints - score.hints_missed) < HINTS_AT_LEAST * score.hints;
}
