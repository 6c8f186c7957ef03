#include "launcherd/process/account.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENTRY_BYTES_MAX (1u << 20)

/* Calls `look` with a buffer that is large enough for the entry. 0, or errno. Only 0 without an
 * entry says that there is none: glibc also returns errno of a service that did not answer, and that
 * can be ENOENT (its socket is missing). */
static int look_up(const char *name, uid_t uid, struct passwd *entry, char **buffer,
                   struct passwd **found)
{
    int code = ERANGE;
    *found = NULL;
    *buffer = NULL;
    for (size_t bytes = 4096; code == ERANGE && bytes <= ENTRY_BYTES_MAX; bytes *= 4) {
        char *larger = realloc(*buffer, bytes);
        if (larger == NULL)
            return ENOMEM;
        *buffer = larger;
        code = name != NULL ? getpwnam_r(name, entry, *buffer, bytes, found)
                            : getpwuid_r(uid, entry, *buffer, bytes, found);
    }
    return code;
}

static enum status take_groups(struct account *account, const char *name, struct err *err)
{
    int capacity = 64, count = capacity;
    for (;;) {
        free(account->groups);
        account->groups = calloc((size_t)capacity, sizeof *account->groups);
        if (account->groups == NULL)
            return err_set(err, STATUS_MEMORY, ENOMEM, "no memory for the groups of %.60s", name);
        count = capacity;
        if (getgrouplist(name, account->gid, account->groups, &count) >= 0)
            break;
        if (capacity >= ACCOUNT_GROUPS_MAX)
            return err_set(err, STATUS_SYSTEM, 0, "the groups of %.60s cannot be read", name);
        capacity = count > capacity && count <= ACCOUNT_GROUPS_MAX ? count : ACCOUNT_GROUPS_MAX;
    }
    account->group_count = (uint32_t)count;
    return STATUS_OK;
}

static enum status take_entry(struct account *account, const struct passwd *entry, struct err *err)
{
    if (strlen(entry->pw_name) >= sizeof account->name ||
        strlen(entry->pw_dir) >= sizeof account->home)
        return err_set(err, STATUS_TOO_BIG, 0, "the name or the home of account %.60s is too long",
                       entry->pw_name);
    account->uid = entry->pw_uid;
    account->gid = entry->pw_gid;
    (void)snprintf(account->name, sizeof account->name, "%s", entry->pw_name);
    (void)snprintf(account->home, sizeof account->home, "%s",
                   entry->pw_dir[0] == '/' ? entry->pw_dir : "/");
    (void)snprintf(account->shell, sizeof account->shell, "%s",
                   entry->pw_shell[0] == '/' ? entry->pw_shell : "/bin/sh");
    return STATUS_OK;
}

/* By `name`, with groups; NULL: by `uid`, without. */
static enum status find(struct account *account, const char *name, uid_t uid, struct err *err)
{
    struct passwd entry, *found = NULL;
    char *buffer = NULL;
    int code = look_up(name, uid, &entry, &buffer, &found);
    enum status status = STATUS_OK;

    memset(account, 0, sizeof *account);
    if (code != 0)
        status = err_set(err, STATUS_SYSTEM, code, "the user database does not answer: %s",
                         strerror(code));
    else if (found == NULL)
        status = STATUS_NOT_FOUND;
    else
        status = take_entry(account, found, err);
    if (status == STATUS_OK && name != NULL)
        status = take_groups(account, account->name, err);
    free(buffer);
    if (status != STATUS_OK)
        account_free(account);
    return status;
}

enum status account_find(struct account *account, const char *name, struct err *err)
{
    return find(account, name, 0, err);
}

enum status account_own(struct account *account, struct err *err)
{
    struct err why = {0};
    enum status status = find(account, NULL, geteuid(), &why);
    if (status == STATUS_OK)
        return status;
    /* Our uid is certain without a database. Some containers have an account without a name, and a
     * service for names that never answers: then ENOENT and the like mean the same. */
    if (status != STATUS_NOT_FOUND && why.code != ENOENT && why.code != ESRCH &&
        why.code != EBADF && why.code != EPERM)
        return err_set(err, status, why.code, "%s", why.text);
    account->uid = geteuid();
    account->gid = getegid();
    (void)snprintf(account->name, sizeof account->name, "uid%u", (unsigned)account->uid);
    (void)snprintf(account->home, sizeof account->home, "/");
    (void)snprintf(account->shell, sizeof account->shell, "/bin/sh");
    return STATUS_OK;
}

void account_free(struct account *account)
{
    free(account->groups);
    account->groups = NULL;
    account->group_count = 0;
}

static enum status check_uid(const struct account_policy *policy, const struct account *account,
                             struct err *err)
{
    if (account->uid >= ACCOUNT_UID_MIN || policy->allow_root)
        return STATUS_OK;
    if (account->uid == 0)
        return err_set(err, STATUS_REFUSED, 0,
                       "node %s runs no jobs of root: submit as another user, or start its "
                       "launcherd with --allow-root",
                       policy->node);
    return err_set(err, STATUS_REFUSED, 0,
                   "node %s runs no jobs of %.60s, an account of the system (uid %u, below %u): "
                   "submit as another user, or start its launcherd with --allow-root",
                   policy->node, account->name, (unsigned)account->uid, ACCOUNT_UID_MIN);
}

enum status account_choose(const struct account_policy *policy, const struct account *own,
                           const char *user, struct account *account, bool *as_self,
                           struct err *err)
{
    struct err why = {0};
    char by_number[24];
    bool is_own = strcmp(own->name, user) == 0;

    memset(account, 0, sizeof *account);
    (void)snprintf(by_number, sizeof by_number, "uid%u", (unsigned)own->uid);
    if (own->uid != 0 &&
        strcmp(by_number, user) == 0) { /* for an account whose name a key cannot have */
        *as_self = true;
        return account_own(account, err);
    }
    if (own->uid != 0 && !is_own)
        return err_set(err, STATUS_REFUSED, 0,
                       "launcherd on %s runs as %.40s and cannot start jobs of %.40s: run it as "
                       "root, or submit as %.40s",
                       policy->node, own->name, user, own->name);
    enum status status = account_find(account, user, &why);
    if (status != STATUS_OK && is_own)
        status = account_own(account, &why);
    if (status == STATUS_NOT_FOUND)
        return err_set(err, status, 0,
                       "node %s has no account %.60s, which submitted the job: add it there, or "
                       "submit as a user that every node has",
                       policy->node, user);
    if (status != STATUS_OK)
        return err_set(err, status, why.code, "node %s: %.180s", policy->node, why.text);
    *as_self = account->uid == own->uid;
    /* A launcherd that is not root can only run jobs as its own user, so that user is not
     * checked. */
    status = own->uid == 0 ? check_uid(policy, account, err) : STATUS_OK;
    if (status != STATUS_OK)
        account_free(account);
    return status;
}

IN_CHILD bool account_become(const struct account *account)
{
    if (syscall(SYS_setgroups, (size_t)account->group_count, account->groups) != 0 ||
        syscall(SYS_setresgid, account->gid, account->gid, account->gid) != 0 ||
        syscall(SYS_setresuid, account->uid, account->uid, account->uid) != 0)
        return false;
    if (account->uid == 0 || syscall(SYS_setuid, 0) != 0)
        return true;
    errno = EPERM; /* root could be regained: a capability was kept */
    return false;
}
