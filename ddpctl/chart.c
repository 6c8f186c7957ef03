#include "ddpctl/chart.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ddpctl/html.h"
#include "ddpctl/units.h"

#define WIDTH 380.0
#define HEIGHT 220.0
#define LEFT 50.0
#define RIGHT 10.0
#define TOP 20.0
#define BOTTOM 34.0
#define POINTS 300  /* parts of a curve: each keeps at most its lowest and its highest point */
#define DOTS_MAX 40 /* up to so many points are drawn as dots */
#define TICKS 5
#define LABEL_ROOM 16.0 /* least distance between the numbers of restarts */
#define MARK_ROOM 5.0   /* least distance between the marks of checkpoints */
#define LOG_DECADES 2.0

/* Where values are in the picture. */
struct plane {
    double x_min, x_max, y_min, y_max; /* y: logarithms if is_log */
    bool is_log;
};

static const struct series *curve_of(const struct chart *chart, const struct report_data *data,
                                     uint32_t i)
{
    return &data->curves[chart->curves[i].curve];
}

bool chart_has_points(const struct chart *chart, const struct report_data *data)
{
    for (uint32_t i = 0; i < chart->curve_count; i++)
        if (curve_of(chart, data, i)->count > 0)
            return true;
    return false;
}

static double place_x(const struct plane *plane, double x)
{
    return LEFT + (x - plane->x_min) / (plane->x_max - plane->x_min) * (WIDTH - LEFT - RIGHT);
}

static double place_y(const struct plane *plane, double y)
{
    double at = plane->is_log ? log10(y) : y;

    return HEIGHT - BOTTOM -
           (at - plane->y_min) / (plane->y_max - plane->y_min) * (HEIGHT - TOP - BOTTOM);
}

/* The distance between ticks: 1, 2 or 5 times a power of ten, for about `ticks` ticks. */
static double tick_width(double range, double ticks)
{
    double raw = range / ticks, power = pow(10, floor(log10(raw))), part = raw / power;

    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

static struct plane make_plane(const struct chart *chart, const struct report_data *data,
                               double step_min, double step_max)
{
    struct plane plane = {
        .x_min = step_min, .x_max = step_max, .y_min = INFINITY, .y_max = -INFINITY};

    for (uint32_t i = 0; i < chart->curve_count; i++)
        for (uint32_t k = 0; k < curve_of(chart, data, i)->count; k++) {
            double value = curve_of(chart, data, i)->points[k].value;

            plane.y_min = fmin(plane.y_min, value);
            plane.y_max = fmax(plane.y_max, value);
        }
    if (plane.x_max <= plane.x_min)
        plane.x_max = plane.x_min + 1;
    plane.is_log = chart->may_be_log && plane.y_min > 0 &&
                   log10(plane.y_max) - log10(plane.y_min) > LOG_DECADES;
    if (plane.is_log) {
        plane.y_min = log10(plane.y_min);
        plane.y_max = log10(plane.y_max);
    } else if (chart->from_zero && plane.y_min > 0) {
        plane.y_min = 0;
    }
    if (plane.y_max - plane.y_min <= fabs(plane.y_max) * 1e-9) { /* all values are equal */
        double half = plane.y_max != 0 ? fabs(plane.y_max) / 2 : 0.5;

        plane.y_max += half;
        plane.y_min -= chart->from_zero && plane.y_min >= 0 ? 0 : half;
    } else {
        double margin = (plane.y_max - plane.y_min) * 0.04;

        plane.y_max += margin;
        plane.y_min -= chart->from_zero && plane.y_min == 0 ? 0 : margin;
    }
    return plane;
}

/* "12k", "0.05", "1e-05": the label of a tick. */
static void axis_text(double value, double width, char text[TEXT_BYTES])
{
    double magnitude = fabs(value);

    if (magnitude < width * 1e-6)
        (void)snprintf(text, TEXT_BYTES, "0");
    else if (magnitude >= 10000 && magnitude < 1e15 && value > 0)
        count_text(value, text);
    else if (magnitude >= 1e15 || magnitude < 1e-3)
        (void)snprintf(text, TEXT_BYTES, "%.3g", value);
    else
        (void)snprintf(text, TEXT_BYTES, "%.4g", value);
}

static void write_y_tick(const struct plane *plane, double value, double width, struct buf *out)
{
    double y = place_y(plane, value);
    char text[TEXT_BYTES];

    axis_text(value, width, text);
    buf_printf(out,
               "<path class=\"grid\" d=\"M%.0f %.1fH%.0f\"/>"
               "<text class=\"tick\" x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
               LEFT, y, WIDTH - RIGHT, LEFT - 5, y + 3.5, text);
}

/* How many ticks there are from `first` to `max`. */
static uint32_t tick_count(double first, double width, double max)
{
    double count = floor((max - first) / width) + 1;

    return count < 1 ? 0 : count < 20 ? (uint32_t)count : 20;
}

static void write_y_axis(const struct plane *plane, struct buf *out)
{
    double width = tick_width(plane->y_max - plane->y_min, TICKS), first;

    if (plane->is_log) {
        width = fmax(1, ceil((plane->y_max - plane->y_min) / TICKS));
        first = fmax(ceil(plane->y_min), DBL_MIN_10_EXP);
    } else {
        first = ceil(plane->y_min / width) * width;
    }
    for (uint32_t i = 0; i < tick_count(first, width, plane->y_max); i++) {
        double at = first + i * width;

        write_y_tick(plane, plane->is_log ? pow(10, at) : at, plane->is_log ? 0 : width, out);
    }
}

static void write_x_axis(const struct plane *plane, struct buf *out)
{
    double width = fmax(1, tick_width(plane->x_max - plane->x_min, TICKS));
    double first = ceil(plane->x_min / width) * width, base = HEIGHT - BOTTOM;

    buf_printf(out, "<path class=\"axis\" d=\"M%.0f %.0fH%.0f\"/>", LEFT, base, WIDTH - RIGHT);
    for (uint32_t i = 0; i < tick_count(first, width, plane->x_max); i++) {
        double x = place_x(plane, first + i * width);
        char text[TEXT_BYTES];

        axis_text(first + i * width, width, text);
        buf_printf(out,
                   "<path class=\"axis\" d=\"M%.1f %.0fv4\"/>"
                   "<text class=\"tick\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"%s\">%s</text>\n",
                   x, base, x, base + 15, x > WIDTH - RIGHT - 12 ? "end" : "middle", text);
    }
    buf_printf(out,
               "<text class=\"tick\" x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">step</text>\n",
               (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5);
}

static void write_marks(const struct plane *plane, const struct report_data *data, struct buf *out)
{
    double last = -INFINITY;

    for (uint32_t i = 0; i < data->checkpoint_count; i++) {
        double x = place_x(plane, data->checkpoints[i]);

        if (x - last < MARK_ROOM || x < LEFT || x > WIDTH - RIGHT)
            continue;
        last = x;
        buf_printf(out,
                   "<path class=\"ckpt\" d=\"M%.1f %.1fl3.5 6h-7z\"><title>checkpoint at step %.0f"
                   "</title></path>\n",
                   x, HEIGHT - BOTTOM - 6.5, data->checkpoints[i]);
    }
    last = -INFINITY;
    for (uint32_t i = 0; i < data->restart_count; i++) {
        const struct report_restart *restart = &data->restarts[i];
        double x = place_x(plane, restart->step);

        if (isnan(x) || x < LEFT || x > WIDTH - RIGHT)
            continue;
        buf_printf(out,
                   "<path class=\"restart\" d=\"M%.1f %.0fV%.0f\"><title>generation %u, after step "
                   "%.0f</title></path>",
                   x, TOP - 4, HEIGHT - BOTTOM, restart->generation, restart->step);
        if (fabs(x - last) >= LABEL_ROOM) {
            buf_printf(out,
                       "<text class=\"mark\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"%s\">g%u</text>",
                       x, TOP - 8, x > WIDTH - RIGHT - 10 ? "end" : "middle", restart->generation);
            last = x;
        }
        buf_add_text(out, "\n");
    }
}

static void write_curve(const struct plane *plane, const struct series *series, uint32_t color,
                        struct buf *out)
{
    buf_printf(out, "<polyline class=\"line c%u\" points=\"", color);
    for (uint32_t k = 0; k < series->count; k++)
        buf_printf(out, "%s%.1f,%.1f", k > 0 ? " " : "", place_x(plane, series->points[k].step),
                   place_y(plane, series->points[k].value));
    buf_add_text(out, "\"/>\n");
    for (uint32_t k = 0; series->count <= DOTS_MAX && k < series->count; k++)
        buf_printf(out,
                   "<circle class=\"dot c%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\"><title>step %.0f: "
                   "%.6g</title></circle>\n",
                   color, place_x(plane, series->points[k].step),
                   place_y(plane, series->points[k].value), series->points[k].step,
                   series->points[k].value);
}

static void range_of(const struct series *series, double *low, double *high)
{
    *low = *high = series->points[0].value;
    for (uint32_t k = 1; k < series->count; k++) {
        *low = fmin(*low, series->points[k].value);
        *high = fmax(*high, series->points[k].value);
    }
}

/* A description in words, for readers who cannot see the picture. */
static void write_words(const struct chart *chart, const struct report_data *data, struct buf *out)
{
    buf_printf(out, "<title id=\"%s-t\">", chart->id);
    html_words(chart->title, out);
    buf_printf(out, "</title><desc id=\"%s-d\">", chart->id);
    for (uint32_t i = 0; i < chart->curve_count; i++) {
        const struct series *series = curve_of(chart, data, i);
        double low, high;

        if (series->count == 0)
            continue;
        range_of(series, &low, &high);
        html_words(chart->curves[i].name, out);
        buf_printf(out,
                   ": from %.4g at step %.0f to %.4g at step %.0f, lowest %.4g, highest %.4g%s. ",
                   series->points[0].value, series->points[0].step,
                   series->points[series->count - 1].value, series->points[series->count - 1].step,
                   low, high, chart->unit);
    }
    buf_add_text(out, "</desc>\n");
}

/* Four digits; large values as whole numbers with all digits. */
static void value_text(double value, char text[TEXT_BYTES])
{
    bool is_large = fabs(value) >= 1000 && fabs(value) < 1e9;

    (void)snprintf(text, TEXT_BYTES, is_large ? "%.0f" : "%.4g", value);
}

static void write_legend(const struct chart *chart, const struct report_data *data, bool is_log,
                         struct buf *out)
{
    buf_add_text(out, "<figcaption>");
    for (uint32_t i = 0; i < chart->curve_count; i++) {
        const struct series *series = curve_of(chart, data, i);
        char text[TEXT_BYTES];

        if (series->count == 0)
            continue;
        value_text(series->points[series->count - 1].value, text);
        buf_printf(out,
                   "<span class=\"key\"><svg class=\"swatch\" viewBox=\"0 0 24 8\" "
                   "aria-hidden=\"true\"><path class=\"line c%u\" d=\"M1 4H23\"/></svg>",
                   i);
        html_words(chart->curves[i].name, out);
        buf_printf(out, " <b>%s</b></span> ", text);
    }
    buf_add_text(out, is_log ? "<span class=\"key\">logarithmic</span>" : "");
    buf_add_text(out, "</figcaption></figure>\n");
}

void chart_write(const struct chart *chart, const struct report_data *data, double step_min,
                 double step_max, struct buf *out)
{
    struct plane plane = make_plane(chart, data, step_min, step_max);

    buf_add_text(out, "<figure><h3>");
    html_words(chart->title, out);
    buf_printf(out,
               "</h3><svg class=\"chart\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
               "aria-labelledby=\"%s-t %s-d\">",
               WIDTH, HEIGHT, chart->id, chart->id);
    write_words(chart, data, out);
    write_y_axis(&plane, out);
    write_x_axis(&plane, out);
    write_marks(&plane, data, out);
    for (uint32_t i = 0; i < chart->curve_count; i++) {
        struct series shown = {0};
        const struct series *series = curve_of(chart, data, i);

        for (uint32_t k = 0; k < series->count && !out->failed; k++)
            out->failed = !series_add(&shown, series->points[k].step, series->points[k].value);
        if (shown.count > 0) {
            series_reduce(&shown, POINTS);
            write_curve(&plane, &shown, i, out);
        }
        series_free(&shown);
    }
    buf_add_text(out, "</svg>");
    write_legend(chart, data, plane.is_log, out);
}
