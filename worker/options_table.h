/* The table of worker/options.h's options; private to worker/options*.c. */
#ifndef WORKER_OPTIONS_TABLE_H
#define WORKER_OPTIONS_TABLE_H

#include "common/options.h"
#include "worker/options.h"

extern const struct option_table options_table;

#endif
