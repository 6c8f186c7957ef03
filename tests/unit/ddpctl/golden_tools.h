/* Compares output with golden/NAME.ok. To update the golden files, run the test with
 * DDP_UPDATE_GOLDEN=1 and review the difference. */
#ifndef TESTS_UNIT_DDPCTL_GOLDEN_TOOLS_H
#define TESTS_UNIT_DDPCTL_GOLDEN_TOOLS_H

#include "common/buf.h"

/* Compares `out` with the golden file, and empties `out`. */
void check_golden(const char *name, struct buf *out);
/* Checks that each line is a JSON object that cJSON can parse. */
void check_json(const struct buf *out);

#endif
