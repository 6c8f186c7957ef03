#include "ddpctl/slurm_reach.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/address_reach.h"
#include "common/io/address_toward.h"
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

static void add(struct own *own, const char *host)
{
    char item[KEY_HOST_BYTES_MAX + 8];

    (void)snprintf(item, sizeof item, strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", host,
                   own->port);
    if (own->count >= SLURM_ADDRESSES_MAX || is_there(own, item))
        return;
    own->byte_count +=
        (size_t)snprintf(own->list + own->byte_count, SLURM_LINE_BYTES_MAX - own->byte_count,
                         "%s%s", own->count > 0 ? "," : "", item);
    own->count++;
}

/* The address as a text. False: of no use to others if `reach` is ADDRESS_FOR_OTHERS, of use if it is ADDRESS_LOOPBACK, or the
 * interface is down. */
static bool is_of(const struct ifaddrs *one, enum address_reach reach, char host[INET6_ADDRSTRLEN])
{
    const int family = one->ifa_addr != NULL ? one->ifa_addr->sa_family : AF_UNSPEC;
    const void *bytes = &((const struct sockaddr_in *)(const void *)one->ifa_addr)->sin_addr;

    if ((one->ifa_flags & IFF_UP) == 0 || (family != AF_INET && family != AF_INET6))
        return false;
    if (family == AF_INET6)
        bytes = &((const struct sockaddr_in6 *)(const void *)one->ifa_addr)->sin6_addr;
    return inet_ntop(family, bytes, host, INET6_ADDRSTRLEN) != NULL &&
           address_reach_of(host) == reach;
}

const char *slurm_reach_any(const struct ifaddrs *all)
{
    const char *any = "0.0.0.0";
    char host[INET6_ADDRSTRLEN];

    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        if (!is_of(one, ADDRESS_FOR_OTHERS, host))
            continue;
        if (strchr(host, ':') == NULL)
            return "0.0.0.0";
        any = "[::]";
    }
    return any;
}

void slurm_reach_list(const struct ifaddrs *all, const char *first, uint16_t port,
                      char list[SLURM_LINE_BYTES_MAX])
{
    static const enum address_reach turns[] = {ADDRESS_FOR_OTHERS, ADDRESS_LOOPBACK};
    const bool has_v6 = strcmp(slurm_reach_any(all), "[::]") == 0;
    struct own own = {.list = list, .port = port};
    char host[INET6_ADDRSTRLEN];

    list[0] = '\0';
    if (first != NULL && (has_v6 || strchr(first, ':') == NULL))
        add(&own, first);
    for (int i = 0; i < 2; i++)
        for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next)
            if (is_of(one, turns[i], host) && (has_v6 || strchr(host, ':') == NULL))
                add(&own, host);
}

void slurm_reach_own(const char *peer, uint16_t port, char list[SLURM_LINE_BYTES_MAX],
                     char listen[SLURM_LISTEN_BYTES])
{
    char source[ADDRESS_BYTES_MAX];
    struct ifaddrs *all = NULL;
    const bool has_source = peer != NULL && address_toward(peer, source);

    if (getifaddrs(&all) != 0)
        all = NULL;
    slurm_reach_list(all, has_source ? source : NULL, port, list);
    (void)snprintf(listen, SLURM_LISTEN_BYTES, "%s:%u", slurm_reach_any(all), port);
    if (all != NULL)
        freeifaddrs(all);
}
