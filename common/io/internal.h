/* Shared by conn.c and conn_open.c; private to them. */
#ifndef COMMON_IO_INTERNAL_H
#define COMMON_IO_INTERNAL_H

#include "common/io/conn.h"

/* Begins to read. 0 or an error of libuv. */
int conn_read_start(struct conn *conn);
/* Closes at once, without writing what is queued; on_closed follows. */
void conn_drop(struct conn *conn, enum status why, const char *text);
/* Writes or queues raw bytes; takes over the content of `buf`. */
enum status conn_write(struct conn *conn, struct buf *buf, struct err *err);

#endif
