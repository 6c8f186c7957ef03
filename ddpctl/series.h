/* A curve: values over steps, in order. A long curve loses points, but of neighbouring points the
 * lowest and the highest stay, so spikes are kept. Pure, apart from the heap. */
#ifndef DDPCTL_SERIES_H
#define DDPCTL_SERIES_H

#include <stdbool.h>
#include <stdint.h>

enum { SERIES_POINTS_MAX = 16384 };

struct series_point {
    double step, value;
};

struct series {
    struct series_point *points; /* [count], owned; steps never decrease */
    uint32_t count, capacity;
};

/* Adds a point. A point before the last step, or a value that is not finite (or absurdly large), is
 * skipped. False: no memory. */
bool series_add(struct series *series, double step, double value);
/* Drops the points after `step`: that work was lost and is done again. */
void series_drop_after(struct series *series, double step);
/* Leaves at most two points for each of `buckets` equal parts of the range of steps. */
void series_reduce(struct series *series, uint32_t buckets);
void series_free(struct series *series);

#endif
