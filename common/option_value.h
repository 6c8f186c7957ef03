/* Parses the text of one option and stores the value in the struct. Only for options.c. */
#ifndef COMMON_OPTION_VALUE_H
#define COMMON_OPTION_VALUE_H

#include "common/options.h"

/* `shown`: how the option was written ("--slots", "-s", "DDP_SLOTS"), for error messages. */
enum status option_value_set(const struct option_row *row, const char *shown, const char *text,
                             void *into, struct err *err);

#endif
