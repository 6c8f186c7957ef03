/* A chart as SVG in a page: curves over steps with axes, with restarts and checkpoints marked. Its
 * colours are the page's (classes c0, c1, c2). Pure. */
#ifndef DDPCTL_CHART_H
#define DDPCTL_CHART_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "ddpctl/report_data.h"

enum { CHART_CURVES_MAX = 3 };

struct chart {
    const char *id, *title, *unit; /* not from a job; unit: for the description, may be empty */
    bool from_zero;                /* false: the axis has only the range of the values */
    bool may_be_log; /* logarithmic if all values are above 0 and span more than two decades */
    struct {
        const char *name;
        enum report_curve curve;
    } curves[CHART_CURVES_MAX];
    uint32_t curve_count;
};

/* Whether at least one of the chart's curves has a point. */
bool chart_has_points(const struct chart *chart, const struct report_data *data);
/* Adds a figure. The axis of steps goes from `step_min` to `step_max`. */
void chart_write(const struct chart *chart, const struct report_data *data, double step_min,
                 double step_max, struct buf *out);

#endif
