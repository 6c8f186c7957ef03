/* backup, restore: save the server's state to a file or put it back, by `rendezvous --backup` and
 * `--restore`, which know both kinds of store. They access the store itself and ask no server. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ddpctl/private_daemons.h"
#include "ddpctl/verbs.h"

#define ARGUMENTS_MAX 24

struct arguments {
    const char *items[ARGUMENTS_MAX];
    size_t count;
};

static void add(struct arguments *arguments, const char *name, const char *value)
{
    if (value == NULL)
        return;
    arguments->items[arguments->count++] = name;
    arguments->items[arguments->count++] = value;
}

/* A server is not asked, so its address would choose nothing: it must not look as if it did. */
static int refuse_server(struct ctl *ctl, const char *verb)
{
    const char *variable = getenv("DDP_SERVER");
    char message[128];

    if (ctl->server_is_on_line) {
        (void)snprintf(message, sizeof message, "%s %s a state directory or etcd, not a server",
                       verb, strcmp(verb, "backup") == 0 ? "reads" : "writes");
        return ctl_fail(ctl, CTL_USAGE, message, "give --state-dir DIR or --store URL");
    }
    if (variable != NULL && variable[0] != '\0')
        screen_message(&ctl->screen, "-- DDP_SERVER is not used: %s asks no server --", verb);
    return CTL_OK;
}

/* `what`: --backup or --restore. Returns only after a failure. */
static int run(struct ctl *ctl, const char *what)
{
    const struct options *options = &ctl->options;
    struct arguments arguments = {.items = {"rendezvous"}, .count = 1};
    char path[PATH_MAX];
    enum status status;
    struct err err;
    int rc = refuse_server(ctl, what + 2);

    if (rc != CTL_OK)
        return rc;
    if (ctl->word_count != 1)
        return ctl_fail(ctl, CTL_USAGE, "one file, please", "ddpctl help backup");
    if (options->store != NULL && options->state_dir != NULL)
        return ctl_fail(ctl, CTL_USAGE, "--state-dir or --store, not both", "");
    add(&arguments, what, ctl->words[0]);
    add(&arguments, "--state-dir", options->state_dir);
    add(&arguments, "--store", options->store);
    add(&arguments, "--store-ca", options->store_ca);
    add(&arguments, "--store-cert", options->store_cert);
    add(&arguments, "--store-key", options->store_key);
    add(&arguments, "--store-user", options->store_user);
    add(&arguments, "--store-password-file", options->store_password_file);
    if (options->move)
        arguments.items[arguments.count++] = "--move";
    status = private_program(options->bindir, "rendezvous", path, &err);
    if (status != STATUS_OK)
        return ctl_fail_err(ctl, CTL_FAILED, &err, "run it where the server is installed");
    (void)fflush(NULL);
    (void)execv(path, (char *const *)(uintptr_t)arguments.items);
    (void)err_set(&err, STATUS_SYSTEM, errno, "cannot run %.200s: %s", path, strerror(errno));
    return ctl_fail_err(ctl, CTL_FAILED, &err, "");
}

int verb_backup(struct ctl *ctl)
{
    return run(ctl, "--backup");
}

int verb_restore(struct ctl *ctl)
{
    return run(ctl, "--restore");
}
