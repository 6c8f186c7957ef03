/* The content of `ddpctl top` as one JSON object and a line feed. Pure, apart from the heap. */
#ifndef DDPCTL_TOP_JSON_H
#define DDPCTL_TOP_JSON_H

#include "common/buf.h"
#include "ddpctl/top_view.h"

void top_json_write(const struct top_view *view, struct buf *out);

#endif
