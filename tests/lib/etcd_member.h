/* One real etcd in the test's own directory. */
#ifndef TESTS_LIB_ETCD_MEMBER_H
#define TESTS_LIB_ETCD_MEMBER_H

#include <stdint.h>
#include <sys/types.h>

struct etcd_member {
    pid_t pid;
    uint16_t port;
    char url[64]; /* "etcd://127.0.0.1:PORT" */
};

/* Starts etcd and waits until it answers. Skips the test if etcd is not installed; fails it if etcd
 * does not start. It ends with this process. `option`: one more argument; NULL: none. */
void etcd_member_start(struct etcd_member *member, const char *option);
/* Kills it at once, like kill -9; the next two functions stop and continue it. */
void etcd_member_kill(struct etcd_member *member);
void etcd_member_pause(const struct etcd_member *member);
void etcd_member_continue(const struct etcd_member *member);
/* Starts the killed member again, with its data and port. */
void etcd_member_again(struct etcd_member *member, const char *option);
/* Of a killed member: copies its data to `name`, or replaces it by that copy, which stays. */
void etcd_member_keep(const struct etcd_member *member, const char *name);
void etcd_member_put_back(const struct etcd_member *member, const char *name);

#endif
