/* Replaces common/msg_protocol.c: makes a program of another release with the same protocol, for
 * tests. */
#include "common/msg_version.h"

uint32_t msg_protocol(void)
{
    return PROTOCOL_VERSION;
}

const char *msg_release(void)
{
    return "0.0.0";
}
