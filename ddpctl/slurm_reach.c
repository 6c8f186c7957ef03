#include "ddpctl/slurm_reach.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io/conn.h"

#define PATIENCE_US (60u * 1000000u)
#define AGAIN_MS 300u

static void try_next(struct slurm_reach *reach);

static void finish(struct slurm_reach *reach, enum status status, const char *text)
{
    slurm_reach_close(reach);
    reach->done(reach, status, text);
}

static void on_again(uv_timer_t *timer)
{
    try_next(timer->data);
}

static void on_dialed(struct dial *dial, enum status status, int fd, const char *text)
{
    struct slurm_reach *reach = dial->owner;

    reach->is_dialing = false;
    if (fd >= 0)
        (void)close(fd);
    if (reach->is_over)
        return;
    if (status == STATUS_OK) {
        finish(reach, STATUS_OK, "");
    } else if (clock_boot_us() > reach->until_us) {
        finish(reach, status, text);
    } else {
        reach->index++;
        (void)uv_timer_start(&reach->timer, on_again, reach->index == 0 ? AGAIN_MS : 1, 0);
    }
}

static void try_next(struct slurm_reach *reach)
{
    struct err err = {0};

    if (!slurm_address(reach->list, reach->index, reach->address, sizeof reach->address)) {
        if (reach->index == 0) {
            finish(reach, STATUS_BAD_INPUT, "the first node has no address");
            return;
        }
        reach->index = UINT32_MAX; /* on_dialed adds 1: the first address is next */
        on_dialed(&reach->dial, STATUS_REFUSED, -1, "none of its addresses answers");
        return;
    }
    reach->dial = (struct dial){.owner = reach};
    if (dial_start(&reach->dial, reach->loop, reach->address, on_dialed, &err) == STATUS_OK)
        reach->is_dialing = true;
    else
        on_dialed(&reach->dial, err.status, -1, err.text);
}

void slurm_reach_start(struct slurm_reach *reach, uv_loop_t *loop, const char *list)
{
    reach->loop = loop;
    reach->dial.owner = reach;
    reach->until_us = clock_boot_us() + PATIENCE_US;
    (void)snprintf(reach->list, sizeof reach->list, "%s", list);
    (void)uv_timer_init(loop, &reach->timer);
    reach->timer.data = reach;
    reach->has_timer = true;
    try_next(reach);
}

void slurm_reach_close(struct slurm_reach *reach)
{
    if (!reach->has_timer || reach->is_over)
        return;
    reach->is_over = true;
    uv_close((uv_handle_t *)&reach->timer, NULL);
    if (reach->is_dialing)
        dial_cancel(&reach->dial);
}

/* -- our own addresses ------------------------------------------------------------------------- */

struct own {
    char *list;
    size_t byte_count;
    uint32_t count;
    uint16_t port;
};

static bool is_there(const struct own *own, const char *item)
{
    char other[KEY_HOST_BYTES_MAX + 8];

    for (uint32_t i = 0; slurm_address(own->list, i, other, sizeof other); i++)
        if (strcmp(other, item) == 0)
            return true;
    return false;
}

static void add(struct own *own, const struct sockaddr *address, bool loopback)
{
    char host[INET6_ADDRSTRLEN], item[INET6_ADDRSTRLEN + 16];

    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)address;

        if ((ntohl(v4->sin_addr.s_addr) >> 24 == 127) != loopback)
            return;
        (void)inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        (void)snprintf(item, sizeof item, "%s:%u", host, own->port);
    } else {
        return; /* no IPv6: the server listens on 0.0.0.0 */
    }
    if (own->count >= SLURM_ADDRESSES_MAX || is_there(own, item))
        return;
    own->byte_count +=
        (size_t)snprintf(own->list + own->byte_count, SLURM_LINE_BYTES_MAX - own->byte_count,
                         "%s%s", own->count > 0 ? "," : "", item);
    own->count++;
}

/* Adds our address from which the kernel would send to `peer`. Nothing is sent. */
static void add_source(struct own *own, const char *peer)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)}, from = {0};
    socklen_t bytes = sizeof from;
    int fd;

    if (peer == NULL || inet_pton(AF_INET, peer, &to.sin_addr) != 1)
        return;
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0 &&
        getsockname(fd, (struct sockaddr *)&from, &bytes) == 0)
        add(own, (const struct sockaddr *)&from, false);
    (void)close(fd);
}

void slurm_reach_own(const char *peer, uint16_t port, char list[SLURM_LINE_BYTES_MAX])
{
    struct own own = {.list = list, .port = port};
    struct ifaddrs *all = NULL;

    list[0] = '\0';
    add_source(&own, peer);
    if (getifaddrs(&all) == 0) {
        for (int loopback = 0; loopback < 2; loopback++)
            for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next)
                if (one->ifa_addr != NULL && (one->ifa_flags & IFF_UP) != 0)
                    add(&own, one->ifa_addr, loopback == 1);
        freeifaddrs(all);
    }
}
