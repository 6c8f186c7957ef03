#include "ddpctl/submit_terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ddpctl/view.h"

#define COLUMNS_MIN 20u /* narrower output helps nobody */
#define TIME_COLUMNS 25u
#define PRIVATE_NODE "node0" /* standalone.c */

void submit_terminal_size(char text[SUBMISSION_SIZE_BYTES])
{
    struct winsize size = {0};

    if ((ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 &&
         ioctl(STDIN_FILENO, TIOCGWINSZ, &size) != 0) ||
        size.ws_row == 0 || size.ws_col == 0)
        size = (struct winsize){.ws_row = 24, .ws_col = 80};
    (void)snprintf(text, SUBMISSION_SIZE_BYTES, "%ux%u", size.ws_row, size.ws_col);
}

bool submit_is_one_stream(const struct submission *submission, const struct ctl *ctl)
{
    const struct options *options = &ctl->options;
    struct stat out, error;

    return strcmp(ctl->verb_name, "run") == 0 && !options->tty && options->redirects == NULL &&
           options->tee == NULL && options->stream == NULL && options->log_dir == NULL &&
           !options->timestamps && !ctl->screen.json && ctl->screen.out_is_tty &&
           submission->spec.nodes * submission->spec.nproc_per_node == 1 &&
           fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &error) == 0 &&
           S_ISCHR(error.st_mode) && out.st_rdev == error.st_rdev;
}

/* The columns of view_prefix. The names of the nodes are not known yet; they are as long as that of this machine, about. */
static uint32_t prefix_columns(const struct ctl *ctl, uint32_t world)
{
    char digits[16], name[NODE_NAME_BYTES_MAX] = PRIVATE_NODE;
    const int width = snprintf(digits, sizeof digits, "%u", world - 1);

    if (!ctl->options.standalone && gethostname(name, sizeof name - 1) != 0)
        return 0;
    return (width < 2 ? 2 : (uint32_t)width) + 1 + (uint32_t)strcspn(name, ".") + 3;
}

static bool is_set(const struct submission *submission, const char *name)
{
    for (uint32_t i = 0; i < submission->spec.env_count; i++)
        if (strcmp(submission->spec.env[i].name, name) == 0)
            return true;
    return getenv(name) != NULL;
}

static void set(struct submission *submission, const char *name, uint32_t number)
{
    struct err err;
    char value[16];

    (void)snprintf(value, sizeof value, "%u", number);
    if (!is_set(submission, name)) /* a job with so many variables that none fits goes without */
        (void)spec_set_env(&submission->spec, &submission->arena, name, value, &err);
}

void submit_terminal_environ(struct submission *submission, const struct ctl *ctl)
{
    const struct options *options = &ctl->options;
    const uint32_t world = submission->spec.nodes * submission->spec.nproc_per_node;
    struct view_options view = {.splits = true};
    const struct view_target target = {.is_terminal = true, .has_ranks = world > 1};
    struct winsize size = {0};
    uint32_t columns, taken;
    struct err err;

    if ((strcmp(ctl->verb_name, "run") != 0 && !options->follow) || options->tty ||
        options->dry_run || options->env_clear || !ctl->screen.out_is_tty || ctl->screen.json ||
        ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0 ||
        view_options_parse(options->prefix, options->stream, &view, &err) != STATUS_OK)
        return;
    columns = size.ws_col;
    taken = (view_has_prefix(&view, &target) ? prefix_columns(ctl, world) : 0) +
            (options->timestamps ? TIME_COLUMNS : 0);
    set(submission, "COLUMNS",
        columns > taken + COLUMNS_MIN ? columns - taken
        : columns < COLUMNS_MIN       ? columns
                                      : COLUMNS_MIN);
    set(submission, "LINES", size.ws_row);
}
