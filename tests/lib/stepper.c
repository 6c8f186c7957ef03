/* stepper FOLDER: a worker that does what the test says (tests/lib/processes/stepper.py). It reads words from FOLDER/RANK.words and answers each
 * with a line of FOLDER/RANK.answers, "GENERATION STEP": "step" makes one step and reports it, "save" also commits a checkpoint of it, which
 * rank 0's next generation goes on from; "exit N" and "kill N" end the process. It steps nowhere by itself. A signal ends it at once. */
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libddp/ddp.h"

static struct ddp_error error;

static void must(enum ddp_status status)
{
    if (status == DDP_OK)
        return;
    (void)fprintf(stderr, "stepper: %s\n", error.text);
    exit(70);
}

static FILE *open_channel(const char *folder, uint32_t rank, const char *name, const char *mode)
{
    char path[4096];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/%" PRIu32 ".%s", folder, rank, name);
    file = fopen(path, mode);
    if (file == NULL) {
        perror(path);
        exit(70);
    }
    return file;
}

static void save(struct ddp *ddp, const char *folder, uint64_t step)
{
    static bool is_fenced;

    if (!is_fenced)
        must(ddp_fence(ddp, folder, &error));
    is_fenced = true;
    must(ddp_commit(ddp, step, NULL, NULL, &error));
}

int main(int argc, char **argv)
{
    struct ddp *ddp;
    const struct ddp_place *place;
    struct ddp_progress progress = {.is_urgent = 1};
    FILE *words, *answers;
    char word[64];
    int number = 0;

    if (argc != 2)
        return 2;
    must(ddp_open(&ddp, &error));
    place = ddp_get_place(ddp);
    progress.step = place->checkpoint_step;
    words = open_channel(argv[1], place->rank, "words", "r");
    answers = open_channel(argv[1], place->rank, "answers", "w");
    (void)printf("generation %" PRIu32 " begins after step %" PRIu64 "\n", place->generation,
                 progress.step);
    (void)fflush(stdout);
    while (fgets(word, sizeof word, words) != NULL) {
        number = (int)strtol(word + strcspn(word, " "), NULL, 10); /* 0 after a word without one */
        if (strncmp(word, "exit ", 5) == 0)
            break;
        if (strncmp(word, "kill ", 5) == 0)
            (void)raise(number);
        if (strcmp(word, "step\n") == 0) {
            progress.step++;
            must(ddp_report(ddp, &progress, &error));
        }
        if (strcmp(word, "save\n") == 0)
            save(ddp, argv[1], progress.step);
        (void)fprintf(answers, "%" PRIu32 " %" PRIu64 "\n", place->generation, progress.step);
        (void)fflush(answers);
    }
    ddp_leave(&ddp);
    return number;
}
