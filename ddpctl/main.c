/* ddpctl: the client. */
#include <signal.h>
#include <stdlib.h>

#include "ddpctl/cmdline.h"

int main(int argc, char **argv)
{
    struct ctl ctl = {0};
    const struct command *command = NULL;
    char **words = calloc((size_t)argc + 3, sizeof *words);
    struct err err = {0}, screen_err = {0};
    enum status status;
    int code;

    (void)signal(SIGPIPE, SIG_IGN); /* a write that fails says so */
    if (!words)
        return CTL_OURS;
    status = cmdline_parse(&ctl, argc, argv, words, &command, &err);
    if (screen_open(&ctl.screen, ctl.options.json, ctl.options.quiet, ctl.options.color,
                    &screen_err) != STATUS_OK)
        code = ctl_fail_err(&ctl, CTL_USAGE, &screen_err, "");
    else if (status != STATUS_OK)
        code = ctl_fail_err(&ctl, CTL_USAGE, &err, "");
    else
        code = command->run(&ctl);
    screen_close(&ctl.screen);
    free(words);
    return code;
}
