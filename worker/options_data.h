/* What the command line says about images; private to worker/options*.c. */
#ifndef WORKER_OPTIONS_DATA_H
#define WORKER_OPTIONS_DATA_H

#include "common/status.h"
#include "worker/options.h"

/* Fills the resolved part of options->images from the text of the options. Errors:
 * STATUS_BAD_INPUT (err names the option and the reason). */
enum status options_check_data(struct options *options, struct err *err);

#endif
