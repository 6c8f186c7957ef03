/* What the verbs share: the words that they take, one request, the end of an output. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ddpctl/request.h"
#include "ddpctl/verbs.h"

int verb_too_many(struct ctl *ctl, int most)
{
    char message[256];

    if (ctl->word_count <= most)
        return 0;
    (void)snprintf(message, sizeof message, "%s: nothing is known about '%.80s'", ctl->verb_name,
                   ctl->words[most]);
    return ctl_fail(ctl, CTL_USAGE, message, "see ddpctl help");
}

int verb_check_job(struct ctl *ctl, const char *word)
{
    if (strlen(word) > 0 && strlen(word) < JOB_NAME_BYTES_MAX)
        return 0;
    return ctl_fail(ctl, CTL_USAGE, "a job is named by its number, its name or @last",
                    "ddpctl ps -a lists them");
}

int verb_need_job(struct ctl *ctl)
{
    if (ctl->word_count == 0) {
        char message[64];

        (void)snprintf(message, sizeof message, "%s: which job?", ctl->verb_name);
        return ctl_fail(ctl, CTL_USAGE, message,
                        "name it by number, name or @last; ddpctl ps -a lists them");
    }
    return verb_check_job(ctl, ctl->words[0]);
}

int verb_need_one_job(struct ctl *ctl)
{
    int rc = verb_need_job(ctl);

    return rc == CTL_OK ? verb_too_many(ctl, 1) : rc;
}

int verb_ask(struct ctl *ctl, struct msg *msg, enum msg_type answer,
             int (*on_answer)(struct ctl *, const struct msg *, void *), void *context)
{
    struct request request = {.msg = msg,
                              .first_is_patient = ctl->was_answered,
                              .patience_us = ctl->was_answered ? ctl->options.patience_us : 5000000,
                              .answer = answer,
                              .on_answer = on_answer,
                              .context = context};

    return request_run(ctl, &request);
}

int verb_done(struct ctl *ctl, struct buf *out)
{
    return screen_out(&ctl->screen, out) == STATUS_OK ? CTL_OK : CTL_FAILED;
}

void verb_begin_picture(struct ctl *ctl, struct buf *out)
{
    if (ctl->options.watch && ctl->screen.out_is_tty && !ctl->screen.json)
        buf_add_text(out, "\x1b[H\x1b[2J");
}

void verb_pause_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&pause, NULL);
}
