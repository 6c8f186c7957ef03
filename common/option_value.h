/* Converts the text of one option and stores it in the member of the struct. For options.c only. */
#ifndef COMMON_OPTION_VALUE_H
#define COMMON_OPTION_VALUE_H

#include "common/options.h"

/* `shown`: how the option was written ("--slots", "-s", "DDP_SLOTS"), for the error. */
enum status option_value_set(const struct option_row *row, const char *shown, const char *text,
                             void *into, struct err *err);

#endif
