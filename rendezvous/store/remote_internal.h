/* Shared by remote.c, remote_load.c and remote_apply.c. */
#ifndef RENDEZVOUS_STORE_REMOTE_INTERNAL_H
#define RENDEZVOUS_STORE_REMOTE_INTERNAL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/io/conn.h"
#include "rendezvous/store/remote.h"
#include "rendezvous/store/row_code.h"

#define REMOTE_KEY_BYTES_MAX (ETCD_PREFIX_BYTES_MAX + 160u)

/* The deadline of the next request. */
uint64_t remote_deadline(struct remote *remote);
__attribute__((format(printf, 3, 4))) struct etcd_bytes
remote_key(const struct remote *remote, char *key, const char *format, ...);
/* The row of that key; NULL: the answer does not have it. */
const struct etcd_row *remote_row(const struct etcd_answer *answer, struct etcd_bytes key);
enum status remote_lost(struct err *err);
enum status remote_write(struct remote *remote, const struct etcd_op *ops, uint32_t op_count,
                         const struct etcd_compare *guard, bool *is_done,
                         const struct etcd_row **value, struct err *err);
/* Adds a write to the next commit, with key and value in remote->text. False: no memory. */
bool remote_add_op(struct remote *remote, size_t key_at, size_t key_bytes, size_t value_at,
                   size_t value_bytes, bool is_delete);
/* The same, given as texts. */
bool remote_add_text(struct remote *remote, const char *key, const char *value);
/* Carries out the writes of remote->ops, whose commit is valid already. */
enum status remote_carry_out(struct remote *remote, const char *valid, struct err *err);
/* Commits the writes that were added. */
enum status remote_commit_ops(struct remote *remote, struct err *err);
/* The first commit of a state that a restore makes: marks it as half of a restored backup. */
enum status remote_mark_restore(struct remote *remote, struct err *err);
/* Applies the writes of remote->ops to the copy of the rows as well. */
enum status remote_apply_ops(struct remote *remote, struct err *err);
struct etcd_op remote_etcd_op(const struct remote *remote, const struct remote_op *op);

#endif
