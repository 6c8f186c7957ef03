/* The account on this node that a job runs as. A job names its submitter; what that name means is
 * decided by the user database of each node, so machines need not agree on numbers. */
#ifndef LAUNCHERD_PROCESS_ACCOUNT_H
#define LAUNCHERD_PROCESS_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/status.h"

/* Below it are root (0) and the accounts of the system. As in Debian's /etc/login.defs, UID_MIN. */
#define ACCOUNT_UID_MIN 1000u
#define ACCOUNT_GROUPS_MAX 65536 /* Linux: NGROUPS_MAX */
/* For functions that run in a child which shares our memory and stack and never return from it: the
 * marks that a sanitizer leaves on the stack would stay. */
#define IN_CHILD __attribute__((no_sanitize("address")))

struct account {
    uid_t uid;
    gid_t gid;
    gid_t *groups; /* owned; account_free */
    uint32_t group_count;
    char name[64]; /* "uid1234" where the user database has no name */
    char home[512];
    char shell[128];
};

/* What this launcherd may do. */
struct account_policy {
    const char *node;
    bool allow_root; /* --allow-root */
};

/* The account `name`: uid, groups, home, shell. STATUS_NOT_FOUND without a text: there is none. May
 * block (LDAP). */
enum status account_find(struct account *account, const char *name, struct err *err);
/* The account of this process, also where the user database does not have it. */
enum status account_own(struct account *account, struct err *err);
void account_free(struct account *account);

/* Who a job of `user` runs as. `as_self`: as this process, without a change of user. STATUS_REFUSED,
 * STATUS_NOT_FOUND with a text for the submitter. `own`: account_own. */
enum status account_choose(const struct account_policy *policy, const struct account *own,
                           const char *user, struct account *account, bool *as_self,
                           struct err *err);

/* In a child: groups, group and user, for good. True only if root cannot be had back. Uses system
 * calls, not glibc's functions, which change the user of every thread. */
bool account_become(const struct account *account);

#endif
