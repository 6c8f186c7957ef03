/* Replaces common/msg_protocol.c: makes a program that speaks the previous protocol version, for
 * tests. */
#include "common/msg_version.h"

uint32_t msg_protocol(void)
{
    return PROTOCOL_VERSION - 1;
}

const char *msg_release(void)
{
    return DDP_VERSION;
}
