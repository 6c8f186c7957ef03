#include "ddpctl/script.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/text.h"

/* Whether the file's first line names its interpreter (#!). */
static bool names_interpreter(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char mark[2];
    bool names;

    if (fd < 0)
        return false;
    names = read(fd, mark, sizeof mark) == (ssize_t)sizeof mark && memcmp(mark, "#!", 2) == 0;
    (void)close(fd);
    return names;
}

/* Whether to run `word` with python3 -u. As with torchrun that is done for `train.py`, but not if
 * the file is executable and begins with #!. */
static bool wants_python(const struct ctl *ctl, const char *word, const char *cwd)
{
    char path[PATH_MAX];

    if (ctl->options.run_path)
        return true;
    if (ctl->options.no_python || !text_ends_with(word, ".py"))
        return false;
    if (snprintf(path, sizeof path, "%s/%s", word[0] == '/' ? "" : cwd, word) >= (int)sizeof path)
        return false;
    return access(path, X_OK) != 0 || !names_interpreter(path);
}

static bool is_on_path(const char *program)
{
    const char *at = getenv("PATH");
    char path[PATH_MAX];

    for (; at && *at; at += at[strcspn(at, ":")] == ':') {
        size_t length = strcspn(at, ":");
        if (snprintf(path, sizeof path, "%.*s/%s", (int)length, at, program) < (int)sizeof path &&
            access(path, X_OK) == 0)
            return true;
        at += length;
    }
    return false;
}

/* torchrun's variable, else the name that is in this machine's PATH. Nodes look for that name in
 * their own PATH. */
static const char *find_python(void)
{
    const char *given = getenv("PYTHON_EXEC");

    if (given && *given)
        return given;
    return is_on_path("python") && !is_on_path("python3") ? "python" : "python3";
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

    if (ctl->word_count == 0)
        return STATUS_OK;
    words = arena_alloc(&submission->arena, ((size_t)ctl->word_count + 3) * sizeof *words);
    if (!words)
        return err_set(err, STATUS_TOO_BIG, 0, "the command is too long");
    if (ctl->options.module || wants_python(ctl, ctl->words[0], submission->cwd)) {
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
