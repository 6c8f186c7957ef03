/* Who may connect over the network: node add, list, remove, rotate, and the same for user. Which
 * key this user has: login, logout. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/io/address.h"
#include "common/io/key_file.h"
#include "common/io/own_path.h"
#include "ddpctl/output.h"
#include "ddpctl/request.h"
#include "ddpctl/verbs.h"

#define PATIENCE_US 5000000u
#define PAGE 500u
#define OVERLAP_DEFAULT_US (UINT64_C(3600) * 1000000)

/* words[0]: what to do; words[1]: the name of the node or user. */
struct key_verb {
    bool is_node; /* false: it is about a user */
    /* list: the entries of the pages so far, with the names in `arena` */
    struct arena arena;
    struct part_principal *items;
    uint32_t count;
    bool more;
};

static int show(struct ctl *ctl, struct buf *out)
{
    return screen_out(&ctl->screen, out) == STATUS_OK ? CTL_OK : CTL_FAILED;
}

static const char *kind(const struct key_verb *verb)
{
    return verb->is_node ? "node" : "user";
}

static bool is_what(const struct ctl *ctl, const char *what)
{
    return strcmp(ctl->words[0], what) == 0;
}

static int check_name(struct ctl *ctl, const struct key_verb *verb, const char *name)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    char message[256];

    if (name[0] != '\0' && strlen(name) < NODE_NAME_BYTES_MAX &&
        strspn(name, allowed) == strlen(name))
        return CTL_OK;
    (void)snprintf(message, sizeof message,
                   "the name of a %s has 1 to %u letters, digits, '.', '_' and '-'; '%.80s' does "
                   "not fit",
                   kind(verb), NODE_NAME_BYTES_MAX - 1, name);
    return ctl_fail(ctl, CTL_USAGE, message, "");
}

/* -- add, rotate ------------------------------------------------------------------------------- */

/* Explains the command that hands the key on: who runs it where, and how long an old key works. */
static void explain_key(struct ctl *ctl, const struct key_verb *verb,
                        const struct msg_principal_key *key)
{
    const char *name = ctl->words[1];
    char until[64];

    output_time(key->old_until_ms, until, sizeof until);
    if (is_what(ctl, "add"))
        screen_message(&ctl->screen,
                       "added: %s %s, role %s. Its key is shown this once. %s %s, run:", kind(verb),
                       name, role_name(key->role), verb->is_node ? "On" : "As", name);
    else if (key->old_until_ms > 0)
        screen_message(&ctl->screen,
                       "rotated: %s %s; the old key works until %s. The new one is shown this "
                       "once. %s %s, run:",
                       kind(verb), name, until, verb->is_node ? "On" : "As", name);
    else
        screen_message(&ctl->screen,
                       "rotated: %s %s; the old key is void now. The new one is shown this once. "
                       "%s %s, run:",
                       kind(verb), name, verb->is_node ? "On" : "As", name);
}

/* A server that listens on this machine alone can be reached through a tunnel, but that is seldom meant. */
static void warn_of_loopback(struct ctl *ctl, const char *url)
{
    struct key key;
    struct err err;

    if (key_parse(url, &key, &err) != STATUS_OK)
        return;
    if (address_is_loopback(key.server))
        screen_message(&ctl->screen,
                       "  no other machine reaches the server at %s: start rendezvous with "
                       "--listen 0.0.0.0:PORT, and rotate this key, if it is for one",
                       key.server);
    key_forget(&key);
}

static int on_key(struct ctl *ctl, const struct msg *msg, void *context)
{
    const struct key_verb *verb = context;
    const struct msg_principal_key *key = &msg->principal_key;
    const char *command = verb->is_node ? "launcherd --join" : "ddpctl login";
    struct buf out = {0};
    int rc;

    if (ctl->screen.json)
        output_key_json(ctl->words[1], key, &out);
    else if (ctl->screen.quiet)
        buf_printf(&out, "%s\n", key->url);
    else
        buf_printf(&out, "%s '%s'\n", command, key->url);
    explain_key(ctl, verb, key);
    rc = show(ctl, &out);
    screen_message(&ctl->screen,
                   "  (`%s -` reads it from stdin: then it is not in the shell's history)",
                   command);
    warn_of_loopback(ctl, key->url);
    if (is_what(ctl, "add") && !verb->is_node)
        screen_message(&ctl->screen,
                       "  jobs of %s run as the account of that name, which every node must have",
                       ctl->words[1]);
    return rc;
}

/* The request is not repeated when the answer is lost: the key is lost with it, and a second add
 * would find the first. The server's message or `list` shows that, and rotate gives a new key. */
static int ask_key(struct ctl *ctl, struct key_verb *verb)
{
    struct msg msg = {0};
    struct request request = {
        .msg = &msg, .answer = MSG_TYPE_PRINCIPAL_KEY, .on_answer = on_key, .context = verb};

    if (is_what(ctl, "add")) {
        msg.type = MSG_TYPE_PRINCIPAL_ADD;
        msg.principal_add.name = ctl->words[1];
        msg.principal_add.role = verb->is_node        ? ROLE_NODE
                                 : ctl->options.admin ? ROLE_ADMIN
                                                      : ROLE_USER;
    } else {
        msg.type = MSG_TYPE_PRINCIPAL_ROTATE;
        msg.principal_rotate.name = ctl->words[1];
        msg.principal_rotate.is_node = verb->is_node;
        msg.principal_rotate.overlap_us = ctl->options.overlap_us != OPTION_NO_DURATION
                                              ? ctl->options.overlap_us
                                              : OVERLAP_DEFAULT_US;
    }
    return request_run(ctl, &request);
}

/* -- remove ------------------------------------------------------------------------------------ */

static int on_removed(struct ctl *ctl, const struct msg *msg, void *context)
{
    const struct key_verb *verb = context;
    const struct msg_principals *gone = &msg->principals;
    struct buf out = {0};

    if (gone->principals.count != 1)
        return ctl_fail_unexpected(ctl, msg);
    if (ctl->screen.json)
        output_key_removed_json(&gone->principals.items[0], &out);
    screen_message(&ctl->screen, "removed: %s %s; its key is void%s", kind(verb), ctl->words[1],
                   gone->principals.items[0].is_connected ? ", its connection was cut" : "");
    return ctl->screen.json ? show(ctl, &out) : CTL_OK;
}

static int ask_remove(struct ctl *ctl, struct key_verb *verb)
{
    struct msg msg = {
        .type = MSG_TYPE_PRINCIPAL_REMOVE,
        .principal_remove = {.name = ctl->words[1], .is_node = verb->is_node},
    };
    struct request request = {
        .msg = &msg, .answer = MSG_TYPE_PRINCIPALS, .on_answer = on_removed, .context = verb};

    return request_run(ctl, &request);
}

/* -- list -------------------------------------------------------------------------------------- */

static int on_page(struct ctl *ctl, const struct msg *msg, void *context)
{
    const struct msg_principals *page = &msg->principals;
    struct key_verb *verb = context;
    const char *before = verb->count > 0 ? verb->items[verb->count - 1].name : "";
    struct part_principal *items =
        realloc(verb->items, (verb->count + page->principals.count + 1u) * sizeof *verb->items);

    if (items == NULL)
        return ctl_fail(ctl, CTL_FAILED, "out of memory", "");
    verb->items = items;
    for (uint32_t i = 0; i < page->principals.count; i++) {
        const char *name = page->principals.items[i].name;

        items[verb->count] = page->principals.items[i];
        name = arena_text(&verb->arena, name, strlen(name));
        if (name == NULL)
            return ctl_fail(ctl, CTL_FAILED, "out of memory", "");
        items[verb->count++].name = name;
    }
    verb->more =
        page->more && page->principals.count > 0 && strcmp(items[verb->count - 1].name, before) > 0;
    return CTL_OK;
}

static int ask_pages(struct ctl *ctl, struct key_verb *verb)
{
    int rc;

    do {
        struct msg msg = {.type = MSG_TYPE_PRINCIPAL_LIST,
                          .principal_list = {.nodes = verb->is_node, .after = "", .limit = PAGE}};
        struct request request = {.msg = &msg,
                                  .patience_us = PATIENCE_US,
                                  .answer = MSG_TYPE_PRINCIPALS,
                                  .on_answer = on_page,
                                  .context = verb};

        if (verb->count > 0)
            msg.principal_list.after = verb->items[verb->count - 1].name;
        rc = request_run(ctl, &request);
    } while (rc == CTL_OK && verb->more);
    return rc;
}

static int list(struct ctl *ctl, struct key_verb *verb)
{
    struct buf out = {0};
    int rc = ask_pages(ctl, verb);

    if (rc == CTL_OK && ctl->screen.json) {
        output_keys_json(verb->items, verb->count, &out);
    } else if (rc == CTL_OK && ctl->screen.quiet) {
        for (uint32_t i = 0; i < verb->count; i++)
            buf_printf(&out, "%s\n", verb->items[i].name);
    } else if (rc == CTL_OK && verb->count == 0) {
        screen_message(&ctl->screen, "no %s has a key; make one: ddpctl %s add NAME", kind(verb),
                       kind(verb));
    } else if (rc == CTL_OK) {
        output_keys(verb->items, verb->count, &out);
    }
    if (rc == CTL_OK)
        rc = show(ctl, &out);
    buf_free(&out);
    free(verb->items);
    arena_reset(&verb->arena);
    return rc;
}

/* -- the verbs --------------------------------------------------------------------------------- */

bool verb_key_is(const char *word)
{
    static const char *const words[] = {"add", "list", "remove", "rotate"};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i], word) == 0)
            return true;
    return false;
}

static int usage(struct ctl *ctl, const struct key_verb *verb, const char *problem)
{
    char message[128], hint[128];

    (void)snprintf(message, sizeof message, "%s: %s", kind(verb), problem);
    (void)snprintf(hint, sizeof hint, "see ddpctl help %s", kind(verb));
    return ctl_fail(ctl, CTL_USAGE, message, hint);
}

static int run(struct ctl *ctl, struct key_verb *verb)
{
    const bool is_list = is_what(ctl, "list"), is_rotate = is_what(ctl, "rotate");
    int rc;

    if (ctl->word_count > (is_list ? 1 : 2))
        return usage(ctl, verb, "too many words");
    if (ctl->options.admin && (verb->is_node || !is_what(ctl, "add")))
        return usage(ctl, verb, "--admin is for user add");
    if (ctl->options.overlap_us != OPTION_NO_DURATION && !is_rotate)
        return usage(ctl, verb, "--overlap is for rotate");
    if (is_list)
        return list(ctl, verb);
    if (ctl->word_count < 2)
        return usage(ctl, verb, "which one? Give its NAME");
    rc = check_name(ctl, verb, ctl->words[1]);
    if (rc != CTL_OK)
        return rc;
    return is_what(ctl, "remove") ? ask_remove(ctl, verb) : ask_key(ctl, verb);
}

int verb_key_node(struct ctl *ctl)
{
    struct key_verb verb = {.is_node = true};

    return run(ctl, &verb);
}

int verb_user(struct ctl *ctl)
{
    struct key_verb verb = {.is_node = false};

    if (ctl->word_count == 0 || !verb_key_is(ctl->words[0]))
        return usage(ctl, &verb, "what? add, list, remove or rotate");
    return run(ctl, &verb);
}

/* -- login, logout ----------------------------------------------------------------------------- */

/* Makes the folders above the file, private to the user. */
static enum status make_folders(const char *path, struct err *err)
{
    char folder[PATH_MAX];
    enum status status;
    int fd;

    (void)snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    status = own_folder_make(folder, 0, 0700, &fd, err);
    if (status == STATUS_OK)
        (void)close(fd);
    return status;
}

/* The server has accepted the new key. Only now it may replace the old key. */
static int on_proved(struct ctl *ctl, const struct msg *msg, void *context)
{
    const struct key *key = &ctl->server.key;
    char path[PATH_MAX];
    struct buf out = {0};
    struct err err = {0};
    enum status status;

    (void)msg;
    (void)context;
    status = server_key_path(path, &err);
    if (status == STATUS_OK)
        status = make_folders(path, &err);
    if (status == STATUS_OK)
        status = key_file_write(path, key, &err);
    if (status != STATUS_OK)
        return ctl_fail_err(ctl, CTL_FAILED, &err, "the key was not kept");
    screen_message(&ctl->screen, "logged in to %s as %s; the key is kept in %s", key->server,
                   key->name, path);
    if (!ctl->screen.json)
        return CTL_OK;
    output_login_json(key->server, key->name, &out);
    return show(ctl, &out);
}

static int prove(struct ctl *ctl, const struct key *key)
{
    struct msg msg = {.type = MSG_TYPE_JOB_LIST, .job_list = {.limit = 1}};
    struct request request = {.msg = &msg, .answer = MSG_TYPE_JOBS, .on_answer = on_proved};
    struct err err = {0};

    server_free(&ctl->server);
    if (server_with_key(&ctl->server, key, &err) != STATUS_OK)
        return ctl_fail_err(ctl, CTL_FAILED, &err, "");
    return request_run(ctl, &request);
}

int verb_login(struct ctl *ctl)
{
    struct key key = {0};
    struct err err = {0};
    int rc;

    if (ctl->word_count != 1)
        return ctl_fail(ctl, CTL_USAGE, "login: with which key? Give one: ddp://..., - or @FILE",
                        "- reads it from stdin; an admin makes one: ddpctl user add NAME");
    if (key_argument(ctl->words[0], &key, &err) != STATUS_OK)
        return ctl_fail_err(ctl, err.status == STATUS_IO ? CTL_FAILED : CTL_USAGE, &err, "");
    rc = prove(ctl, &key);
    key_forget(&key);
    return rc;
}

int verb_logout(struct ctl *ctl)
{
    char path[PATH_MAX];
    struct buf out = {0};
    struct err err = {0};
    enum status status;

    if (ctl->word_count > 0)
        return ctl_fail(ctl, CTL_USAGE, "logout takes no words", "");
    if (server_key_path(path, &err) != STATUS_OK)
        return ctl_fail_err(ctl, CTL_FAILED, &err, "");
    status = own_file_remove(path, 0, &err);
    if (status == STATUS_OK) {
        screen_message(&ctl->screen,
                       "logged out: %s is removed. The key stays valid: ddpctl user remove, or "
                       "rotate, makes it void",
                       path);
    } else if (status == STATUS_NOT_FOUND) {
        screen_message(&ctl->screen, "nobody was logged in");
    } else {
        return ctl_fail_err(ctl, CTL_FAILED, &err, "");
    }
    if (!ctl->screen.json)
        return CTL_OK;
    output_login_json(NULL, NULL, &out);
    return show(ctl, &out);
}
