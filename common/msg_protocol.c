#include "common/msg_version.h"

uint32_t msg_protocol(void)
{
    return PROTOCOL_VERSION;
}

const char *msg_release(void)
{
    return DDP_VERSION;
}
