#include "ddpctl/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/io/address.h"
#include "common/io/default_server.h"
#include "common/io/key_file.h"
#include "common/io/server_list.h"

enum status server_key_path(char path[PATH_MAX], struct err *err)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n;

    if (config != NULL && config[0] == '/')
        n = snprintf(path, PATH_MAX, "%s/ddp/key", config);
    else if (home != NULL && home[0] == '/')
        n = snprintf(path, PATH_MAX, "%s/.config/ddp/key", home);
    else
        return err_set(err, STATUS_NOT_FOUND, 0,
                       "there is no place for a key: neither XDG_CONFIG_HOME nor HOME is set");
    return n < PATH_MAX ? STATUS_OK
                        : err_set(err, STATUS_TOO_BIG, 0, "the path of the key file is too long");
}

static enum status read_key(struct key *key, struct err *err)
{
    char path[PATH_MAX];
    enum status status = server_key_path(path, err);

    return status == STATUS_OK ? key_file_read(path, key, err) : status;
}

enum status server_with_key(struct server *server, const struct key *key, struct err *err)
{
    *server = (struct server){.key = *key};
    server->address = server->key.server;
    return tls_client_new(&server->tls, &server->key, err);
}

/* Whether the key is for one of these servers. */
static bool is_key_of(const struct key *key, const struct server_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (server_list_has(key->server, server_list_at(list, i)))
            return true;
    return false;
}

/* The first server that takes only clients with a key; NULL: none does. */
static const char *find_remote(const struct server_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const char *address = server_list_at(list, i);

        if (!address_is_unix(address) && !address_is_loopback(address))
            return address;
    }
    return NULL;
}

static bool has_tcp(const struct server_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (!address_is_unix(server_list_at(list, i)))
            return true;
    return false;
}

/* Uses the servers that `named` lists. Over TCP we use the key that is for them; without one, only
 * a loopback address can be called. */
static void choose_named(struct server *server, const char *named)
{
    struct err err = {.status = STATUS_OK}, unused;
    struct server_list list;
    const char *remote;
    enum status status;

    server->address = named;
    if (server_list_parse(&list, named, &server->problem) != STATUS_OK)
        return;
    status = read_key(&server->key, &err);
    remote = find_remote(&list);
    if (has_tcp(&list) && status != STATUS_OK && status != STATUS_NOT_FOUND)
        server->problem = err;
    else if (has_tcp(&list) && status == STATUS_OK && is_key_of(&server->key, &list))
        (void)tls_client_new(&server->tls, &server->key, &server->problem);
    else if (remote != NULL)
        (void)err_set(&server->problem, STATUS_REFUSED, 0,
                      "you have no key for the server at %.80s%s%.80s", remote,
                      status == STATUS_OK ? ": yours is for " : "",
                      status == STATUS_OK ? server->key.server : "");
    else if (status == STATUS_OK)
        (void)tls_client_new(&server->referred_tls, &server->key, &unused);
    if (server->tls == NULL && server->referred_tls == NULL)
        key_forget(&server->key);
}

static void choose_default(struct server *server)
{
    struct err err = {.status = STATUS_OK};
    enum status status = read_key(&server->key, &err);

    server->is_default = true;
    if (status != STATUS_OK) {
        default_server_find(true, server->socket);
        server->address = server->socket;
    }
    if (status == STATUS_OK) {
        server->address = server->key.server;
        (void)tls_client_new(&server->tls, &server->key, &server->problem);
    } else if (status != STATUS_NOT_FOUND) {
        server->problem = err;
    }
}

void server_choose(struct server *server, const char *named)
{
    *server = (struct server){.address = named};
    if (named == NULL)
        choose_default(server);
    else
        choose_named(server, named);
}

void server_free(struct server *server)
{
    tls_context_free(&server->tls);
    tls_context_free(&server->referred_tls);
    key_forget(&server->key);
}
