/* Checks that the encoder and the decoder of messages share, and their error texts. */
#ifndef COMMON_MSG_CHECK_H
#define COMMON_MSG_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/msg_table.h"
#include "common/status.h"

/* Where a value is: a field of a message or of a part in a list. For sentences such as
 * "job_info.ranks[3].slot". */
struct msg_where {
    const char *message;
    const char *list; /* NULL: not in a part */
    uint32_t index;   /* in the list */
    const char *field;
};

/* err: "WHERE: what was expected" */
enum status msg_refuse(const struct msg_where *where, struct err *err, enum status status,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));

bool msg_in_range_signed(const struct msg_field *field, int64_t value);
bool msg_in_range_unsigned(const struct msg_field *field, uint64_t value);
/* Refuses an integer, given as text; the error names the range. */
enum status msg_refuse_integer(const struct msg_where *where, const struct msg_field *field,
                               const char *value, struct err *err);
enum status msg_check_real(const struct msg_where *where, const struct msg_field *field,
                           double value, struct err *err);
/* Checks a TEXT, LINE or NAME, by the field's kind. */
enum status msg_check_text(const struct msg_where *where, const struct msg_field *field,
                           const char *text, size_t byte_count, struct err *err);
/* Checks the count of TEXTS, PAIRS, BYTES or LIST; `what` is their plural. */
enum status msg_check_count(const struct msg_where *where, const struct msg_field *field,
                            uint64_t count, const char *what, struct err *err);

#endif
