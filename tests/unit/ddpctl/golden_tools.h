/* Output against golden/NAME.ok. To update the golden files, run the test with DDP_UPDATE_GOLDEN=1 and
 * review the difference. */
#ifndef TESTS_UNIT_DDPCTL_GOLDEN_TOOLS_H
#define TESTS_UNIT_DDPCTL_GOLDEN_TOOLS_H

#include "common/buf.h"

/* Empties `out`. */
void check_golden(const char *name, struct buf *out);
/* Each line is a JSON object that cJSON takes. */
void check_json(const struct buf *out);

#endif
