#include "launcherd/shim/part_address.h"

#include <stdio.h>
#include <string.h>

#include "common/address_reach.h"
#include "common/io/address_toward.h"

void part_address_start(const struct msg_start *start, const char *node_name, const char *given,
                        char address[ADDRESS_BYTES_MAX])
{
    (void)snprintf(address, ADDRESS_BYTES_MAX, "%s", given);
    for (uint32_t i = 0; i < start->nodes.count; i++)
        if (strcmp(start->nodes.items[i].name, node_name) == 0)
            (void)snprintf(address, ADDRESS_BYTES_MAX, "%s", start->nodes.items[i].value);
}

void part_address_go(const char *master_addr, char address[ADDRESS_BYTES_MAX])
{
    char own[ADDRESS_BYTES_MAX];

    if (address_reach_of(address) != ADDRESS_FOR_OTHERS &&
        address_reach_of(master_addr) == ADDRESS_FOR_OTHERS && address_toward(master_addr, own))
        (void)snprintf(address, ADDRESS_BYTES_MAX, "%s", own);
}
