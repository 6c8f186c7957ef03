/* The optimizer that the command line asks for; private to worker/options*.c. */
#ifndef WORKER_OPTIONS_OPTIM_H
#define WORKER_OPTIONS_OPTIM_H

#include "common/status.h"
#include "worker/options.h"

/* Fills options->optim from the text of the options; options->amp is resolved already. Errors:
 * STATUS_BAD_INPUT (err names the option and the reason). */
enum status options_check_optim(struct options *options, struct err *err);

#endif
