/* One value of an option: text to the member of the struct. Used by options.c alone. */
#ifndef COMMON_OPTION_VALUE_H
#define COMMON_OPTION_VALUE_H

#include "common/options.h"

/* `shown`: how the option was written ("--slots", "-s", "DDP_SLOTS"), for the error. */
enum status option_value_set(const struct option_row *row, const char *shown, const char *text,
                             void *into, struct err *err);

#endif
