/* In place of common/msg_protocol.c: a program of another release that speaks the same protocol, for tests. */
#include "common/msg_version.h"

uint32_t msg_protocol(void)
{
    return PROTOCOL_VERSION;
}

const char *msg_release(void)
{
    return "0.0.0";
}
