/* The id of this machine, as the server may know it: it tells machines apart and says nothing else
 * of them. */
#ifndef LAUNCHERD_PROCESS_MACHINE_ID_H
#define LAUNCHERD_PROCESS_MACHINE_ID_H

#include <stdbool.h>

#include "common/limits.h"

/* Empty: it is not known. /etc/machine-id together with the id that the firmware has for the machine
 * (DMI, which root may read: machines that were cloned with their /etc/machine-id differ in it),
 * hashed with the name of this use, as machine-id(5) asks for. In a container /etc/machine-id comes
 * with the image, so it counts only together with the firmware's. */
void machine_id(char id[IDENTITY_BYTES_MAX]);
/* The same from these texts; NULL: there is none. */
void machine_id_of(const char *etc, const char *firmware, bool in_container,
                   char id[IDENTITY_BYTES_MAX]);

#endif
