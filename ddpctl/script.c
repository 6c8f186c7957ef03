#include "ddpctl/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "ddpctl/program_kind.h"

/* Whether to run `word` with python3 -u, as torchrun does. */
static enum status wants_python(const struct ctl *ctl, const char *word, const char *cwd,
                                bool *wanted, struct err *err)
{
    if (ctl->options.module && ctl->options.no_python)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--module and --no-python do not go together: Python runs a module");
    *wanted = ctl->options.run_path || ctl->options.module;
    if (*wanted || ctl->options.no_python)
        return STATUS_OK;
    return program_is_python(word, cwd, getenv("PATH"), wanted, err);
}

/* torchrun's variable, else the name of the python that a shell here would run. Ranks have our PATH,
 * and each node looks for that name there. */
static const char *find_python(void)
{
    const char *given = getenv("PYTHON_EXEC");

    return given && *given ? given : program_python(getenv("PATH"));
}

/* --local-rank-arg: its place is after the script or the module, as in torch.distributed.launch. */
static enum status take_local_rank(struct submission *submission, const struct ctl *ctl,
                                   uint32_t first, struct err *err)
{
    const char *name = ctl->options.local_rank_arg;
    char text[128];
    const char *value;
    uint32_t at = 0, count = (uint32_t)ctl->word_count;

    while (first == 0 && at < count && !text_ends_with(ctl->words[at], ".py"))
        at++;
    (void)snprintf(text, sizeof text, "%u:%.100s", first + (at < count ? at : 0) + 1,
                   name + strspn(name, "-"));
    value = arena_text(&submission->arena, text, strlen(text));
    if (!value)
        return err_set(err, STATUS_TOO_BIG, 0, "the command is too long");
    return spec_set_launch(&submission->spec, LAUNCH_LOCAL_RANK_ARG, value, err);
}

enum status script_take(struct submission *submission, struct ctl *ctl, struct err *err)
{
    const char **words;
    uint32_t count = 0;
    bool is_python = false;
    enum status status;

    if (ctl->word_count == 0)
        return STATUS_OK;
    status = wants_python(ctl, ctl->words[0], submission->cwd, &is_python, err);
    if (status != STATUS_OK)
        return status;
    words = arena_alloc(&submission->arena, ((size_t)ctl->word_count + 3) * sizeof *words);
    if (!words)
        return err_set(err, STATUS_TOO_BIG, 0, "the command is too long");
    if (is_python) {
        words[count++] = find_python();
        words[count++] = "-u";
        if (ctl->options.module)
            words[count++] = "-m";
        screen_message(&ctl->screen, "running %s as: %s -u %s%s", ctl->words[0], words[0],
                       ctl->options.module ? "-m " : "", ctl->words[0]);
    }
    for (int i = 0; i < ctl->word_count; i++)
        words[count++] = ctl->words[i];
    submission->spec.argv = (struct msg_text_list){.items = words, .count = count};
    if (!ctl->options.local_rank_arg)
        return STATUS_OK;
    return take_local_rank(submission, ctl, count - (uint32_t)ctl->word_count, err);
}
