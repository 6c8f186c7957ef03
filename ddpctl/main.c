/* ddpctl: the client. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/io/standard_open.h"
#include "ddpctl/cmdline.h"
#include "ddpctl/docs.h"
#include "ddpctl/run_here.h"
#include "ddpctl/slurm_node.h"

/* --help=man, bash, zsh or fish: for the build of packages. */
static int print_docs(enum option_form form)
{
    struct buf text = {0};
    size_t written;
    int code = CTL_OK;

    docs_write(form, &text);
    written = fwrite(text.bytes, 1, text.byte_count, stdout);
    if (text.failed || written != text.byte_count || fflush(stdout) != 0) {
        (void)fprintf(stderr, "ddpctl: cannot write to standard output: %s\n", strerror(errno));
        code = CTL_FAILED;
    }
    buf_free(&text);
    return code;
}

static int run(struct ctl *ctl, const struct command *command)
{
    int code = CTL_OK;

    if (ctl->options.standalone || ctl->options.slurm)
        ctl->server.address = ""; /* these two start a server of their own */
    else
        server_choose(&ctl->server, ctl->options.server);
    if (command->verb == VERB_RUN)
        code = run_here_choose(ctl);
    ctl->options.server = ctl->server.address;
    if (code == CTL_OK)
        code = command->run(ctl);
    server_free(&ctl->server);
    return code;
}

int main(int argc, char **argv)
{
    struct slurm_node_options task;
    struct ctl ctl = {0};
    const struct command *command = NULL;
    char **words;
    struct err err = {0}, screen_err = {0};
    enum option_form form;
    enum status status;
    int code;

    standard_open();
    (void)signal(SIGPIPE, SIG_IGN); /* a write to a closed pipe then fails with EPIPE, */
    (void)signal(SIGXFSZ, SIG_IGN); /* and one beyond ulimit -f with EFBIG */
    if (option_docs_asked(argc, argv, &form))
        return print_docs(form);
    if (slurm_node_asked(argc, argv, &task))
        return slurm_node_main(&task);
    words = calloc((size_t)argc + 3, sizeof *words);
    if (!words)
        return CTL_OURS;
    status = cmdline_parse(&ctl, argc, argv, words, &command, &err);
    if (screen_open(&ctl.screen, ctl.options.json, ctl.options.quiet, ctl.options.color,
                    &screen_err) != STATUS_OK)
        code = ctl_fail_err(&ctl, CTL_USAGE, &screen_err, "");
    else if (status != STATUS_OK)
        code = ctl_fail_err(&ctl, CTL_USAGE, &err, "");
    else
        code = run(&ctl, command);
    screen_close(&ctl.screen);
    free(words);
    return ctl_exit_written(&ctl, code);
}
