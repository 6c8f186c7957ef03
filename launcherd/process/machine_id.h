/* The id of this machine, as the server may know it: it tells machines apart and says nothing else
 * of them. */
#ifndef LAUNCHERD_PROCESS_MACHINE_ID_H
#define LAUNCHERD_PROCESS_MACHINE_ID_H

#include <stdbool.h>

#include "common/limits.h"

#define MACHINE_CARD_BYTES 64u

/* Empty: it is not known. /etc/machine-id is no id by itself: all machines of one image have it, and all containers of
 * one. It counts together with something that a copy of the disk does not have: the id that the firmware has for the
 * machine (DMI, which root may read), or the address of a network card. All of them hashed with the name of this use,
 * as machine-id(5) asks for. */
void machine_id(char id[IDENTITY_BYTES_MAX]);
/* The same from these texts; NULL: there is none. */
struct machine_facts {
    const char *etc, *firmware, *card;
};
void machine_id_of(const struct machine_facts *facts, char id[IDENTITY_BYTES_MAX]);
/* The smallest address that a card brings with it, of the devices in `net`. False: there is none. Those that were set, drawn
 * at random, are of devices without hardware (bridges, the ends of tunnels, a container's), or of virtual machines, which
 * have them from their configuration, do not count. */
bool machine_card(const char *net, char card[MACHINE_CARD_BYTES]);

#endif
