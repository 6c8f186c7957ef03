/* The account on this node that a job runs as. A job names its submitter; the user database of each
 * node decides what that name means, so machines need not agree on uids. */
#ifndef LAUNCHERD_PROCESS_ACCOUNT_H
#define LAUNCHERD_PROCESS_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/status.h"
#include "launcherd/process/clone_child.h"

/* root (0) and system accounts are below it; UID_MIN in Debian's /etc/login.defs. */
#define ACCOUNT_UID_MIN 1000u
#define ACCOUNT_GROUPS_MAX 65536 /* Linux: NGROUPS_MAX */

struct account {
    uid_t uid;
    gid_t gid;
    gid_t *groups; /* owned; account_free */
    uint32_t group_count;
    char name[64]; /* "uid1234" where the user database has no name */
    char home[512];
    char shell[128];
};

/* Which accounts this launcherd may use. */
struct account_policy {
    const char *node;
    bool allow_root; /* --allow-root */
};

/* Looks up the account `name`: uid, groups, home, shell. STATUS_NOT_FOUND without a text: it does
 * not exist. May block (LDAP). */
enum status account_find(struct account *account, const char *name, struct err *err);
/* The account of this process, even if the user database does not have it. Without groups: nobody has to
 * become it. */
enum status account_own(struct account *account, struct err *err);
void account_free(struct account *account);

/* Which account a job of `user` runs as. "uid1234" is this process's own account by its number, unless
 * that is root. `own`: from account_own. `as_self`: without a change of user. STATUS_REFUSED,
 * STATUS_NOT_FOUND: with a text for the submitter. */
enum status account_choose(const struct account_policy *policy, const struct account *own,
                           const char *user, struct account *account, bool *as_self,
                           struct err *err);

/* In a child: sets groups, group and user for good. True: done, and root cannot be regained (unless
 * the account is root). Uses system calls directly, since glibc's functions change the user of every
 * thread. */
bool account_become(const struct account *account);

#endif
