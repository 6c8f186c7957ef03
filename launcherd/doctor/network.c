/* The interface of this node's jobs, its own name, and the names of other nodes. */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcherd/doctor/doctor_parts.h"
#include "launcherd/process/interface.h"

/* Resolves a name to `wanted`, if it has that address, or to its first one. False: `problem` says
 * why there is none. */
static bool resolve(const char *name, const char *wanted, char address[64], char problem[160])
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    char text[NI_MAXHOST];
    int rc = getaddrinfo(name, NULL, &hints, &all);
    bool is_first = true;

    if (rc != 0) {
        (void)snprintf(problem, 160, "%s", gai_strerror(rc));
        return false;
    }
    for (const struct addrinfo *at = all; at != NULL; at = at->ai_next) {
        if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST) !=
            0)
            continue;
        if (is_first || strcmp(text, wanted) == 0)
            (void)snprintf(address, 64, "%.63s", text);
        is_first = false;
    }
    freeaddrinfo(all);
    return !is_first;
}

/* Uses ioctl, because /sys may show another network namespace. */
static void interface(struct node_facts *facts)
{
    struct ifreq request = {0};
    char path[96];
    FILE *file;
    long mbps = 0;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return;
    (void)snprintf(request.ifr_name, sizeof request.ifr_name, "%.15s", facts->interface);
    if (ioctl(fd, SIOCGIFMTU, &request) == 0)
        facts->mtu = request.ifr_mtu;
    if (ioctl(fd, SIOCGIFFLAGS, &request) == 0) {
        facts->is_link_up = (request.ifr_flags & IFF_UP) != 0 && (request.ifr_flags & IFF_RUNNING);
        facts->is_loopback = (request.ifr_flags & IFF_LOOPBACK) != 0;
    }
    (void)close(fd);
    (void)snprintf(path, sizeof path, "/sys/class/net/%.15s/speed", facts->interface);
    file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fscanf(file, "%ld", &mbps) == 1 && mbps > 0) /* NOLINT(cert-err34-c): of the kernel */
        facts->link_mbps = mbps;
    (void)fclose(file);
}

void doctor_network(const struct doctor *doctor, struct node_facts *facts)
{
    const char *range = doctor_read_line("/proc/sys/net/ipv4/ip_local_port_range");
    char name[IF_NAMESIZE], *end;

    if (range != NULL) {
        facts->port_first = strtol(range, &end, 10);
        facts->port_last = strtol(end, NULL, 10);
    }
    (void)snprintf(facts->address, sizeof facts->address, "%.63s", doctor->address);
    if (interface_of_address(doctor->address, name)) {
        (void)snprintf(facts->interface, sizeof facts->interface, "%s", name);
        interface(facts);
    }
    if (gethostname(facts->host_name, sizeof facts->host_name - 1) == 0)
        (void)resolve(facts->host_name, doctor->address, facts->host_address, facts->host_problem);
}

void doctor_names(const struct doctor *doctor, struct node_facts *facts)
{
    for (uint32_t i = 0; i < doctor->ask->peers.count; i++) {
        const struct msg_pair *peer = &doctor->ask->peers.items[i];
        struct name_facts *row = node_facts_add_names(facts);
        char problem[160];

        if (row == NULL)
            return;
        (void)snprintf(row->name, sizeof row->name, "%.63s", peer->name);
        (void)resolve(peer->name, peer->value, row->address, problem);
    }
}
