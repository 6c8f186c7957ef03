/* One real etcd, in the test's own directory, for tests of what talks to it. */
#ifndef TESTS_LIB_ETCD_MEMBER_H
#define TESTS_LIB_ETCD_MEMBER_H

#include <stdint.h>
#include <sys/types.h>

struct etcd_member {
    pid_t pid;
    uint16_t port;
    char url[64]; /* "etcd://127.0.0.1:PORT" */
};

/* Started, and answers. Skips the test where etcd is not installed; fails it when etcd does not start.
 * It ends with this process. `option`: one more argument; NULL: none. */
void etcd_member_start(struct etcd_member *member, const char *option);
/* At once, like kill -9; or stopped until it is continued. */
void etcd_member_kill(struct etcd_member *member);
void etcd_member_pause(const struct etcd_member *member);
void etcd_member_continue(const struct etcd_member *member);
/* The member that was killed, with its data, at its port. */
void etcd_member_again(struct etcd_member *member, const char *option);

#endif
