/* Tells systemd, where it started us, that we are ready. Source: sd_notify(3), the protocol. */
#ifndef COMMON_IO_NOTIFY_H
#define COMMON_IO_NOTIFY_H

/* One datagram to $NOTIFY_SOCKET; nothing where that is not set. */
void notify_ready(void);

#endif
