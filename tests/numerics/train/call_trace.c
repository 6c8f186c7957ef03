/* Linked into a ddp-worker of its own with --wrap: it appends a letter to the file
 * $DDP_TEST_CALLS-RANK for each backward pass (b) and each reduction of a bucket (r), in the order
 * in which they begin. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "worker/comm/comm.h"
#include "worker/net/net.h"

/* --wrap makes these names. */
enum status __real_comm_all_reduce_sum(struct comm *comm, float *values, size_t count,
                                       struct err *err);
enum status __wrap_comm_all_reduce_sum(struct comm *comm, float *values, size_t count,
                                       struct err *err);
enum status __real_net_backward(struct net *net, float grad_scale, struct err *err);
enum status __wrap_net_backward(struct net *net, float grad_scale, struct err *err);
enum status __real_net_backward_reduce(struct net *net, float grad_scale, struct err *err);
enum status __wrap_net_backward_reduce(struct net *net, float grad_scale, struct err *err);

static void append(char letter)
{
    char path[512];
    int fd;

    (void)snprintf(path, sizeof path, "%s-%s", getenv("DDP_TEST_CALLS"), getenv("RANK"));
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, &letter, 1) != 1)
        abort();
    (void)close(fd);
}

enum status __wrap_comm_all_reduce_sum(struct comm *comm, float *values, size_t count,
                                       struct err *err)
{
    append('r');
    return __real_comm_all_reduce_sum(comm, values, count, err);
}

enum status __wrap_net_backward(struct net *net, float grad_scale, struct err *err)
{
    append('b');
    return __real_net_backward(net, grad_scale, err);
}

enum status __wrap_net_backward_reduce(struct net *net, float grad_scale, struct err *err)
{
    append('b');
    return __real_net_backward_reduce(net, grad_scale, err);
}
