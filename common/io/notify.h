/* Tells systemd, if it started us, that we are ready. Protocol: sd_notify(3). */
#ifndef COMMON_IO_NOTIFY_H
#define COMMON_IO_NOTIFY_H

/* Sends one datagram to $NOTIFY_SOCKET; does nothing if that is not set. */
void notify_ready(void);

#endif
