/* A profile as a table and as JSON. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "worker/net/profile.h"
#include "worker/profile/profile.h"

static double ms_of(const struct profile_line *line)
{
    return line->forward_ms + line->backward_ms;
}

/* 10^9 per second, for `amount` in `ms` milliseconds. */
static double giga_per_s(double amount, double ms)
{
    return ms > 0.0 ? amount / ms * 1e-6 : 0.0;
}

static double share(const struct profile *profile, double ms)
{
    return profile->facts.step_ms > 0.0 ? 100.0 * ms / profile->facts.step_ms : 0.0;
}

static void print_number(FILE *out, int width, int digits, double value)
{
    if (value > 0.0)
        (void)fprintf(out, " %*.*f", width, digits, value);
    else
        (void)fprintf(out, " %*s", width, "-");
}

static void print_line(FILE *out, const struct profile *profile, const struct profile_line *line)
{
    const double ms = ms_of(line), roof = profile_roof_share(profile, line);

    (void)fprintf(out, "%-28.63s %-13s %-4s", line->name, line->op, line->type);
    print_number(out, 10, 3, line->forward_ms);
    print_number(out, 11, 3, line->backward_ms);
    if (line->is_beside)
        (void)fprintf(out, " %7s", "beside");
    else
        print_number(out, 7, 1, share(profile, ms));
    print_number(out, 9, 3, line->flop * 1e-9);
    print_number(out, 9, 1, giga_per_s(line->flop, ms));
    print_number(out, 8, 1, giga_per_s(line->bytes, ms));
    print_number(out, 6, 1, 100.0 * roof);
    (void)fputc('\n', out);
}

static void print_groups(FILE *out, const struct profile *profile)
{
    (void)fprintf(out, "\n%-28s %10s %7s\n", "part of a step", "ms", "%");
    for (uint32_t g = 0; g < PROFILE_GROUPS; g++)
        if (profile->group_ms[g] > 0.0)
            (void)fprintf(out, "%-28s %10.3f %7.1f\n", profile_group_name((enum profile_group)g),
                          profile->group_ms[g], share(profile, profile->group_ms[g]));
    (void)fprintf(out, "%-28s %10.3f %7.1f\n", "sum of these", profile->sum_ms,
                  share(profile, profile->sum_ms));
    (void)fprintf(out, "%-28s %10.3f %7.1f\n", "rest of the step, idle", profile->rest_ms,
                  share(profile, profile->rest_ms));
}

static double images_per_s(const struct profile *profile)
{
    const struct profile_facts *facts = &profile->facts;

    return facts->step_ms > 0.0 ? facts->images * (double)facts->world * 1e3 / facts->step_ms : 0.0;
}

static void print_roof(FILE *out, const struct roof *roof)
{
    if (roof == NULL)
        (void)fputs("roof: unknown for this device\n", out);
    else
        (void)fprintf(out, "roof of %s: %.0f TFLOP/s at 16 bits, %.0f at fp32, %.0f GB/s\n",
                      roof->name, roof->half_tflops, roof->float_tflops, roof->memory_gb_s);
}

void profile_print(FILE *out, const struct profile *profile)
{
    const struct profile_facts *facts = &profile->facts;

    (void)fprintf(out, "\n-- profile: %.80s %s on %.80s, %u images a step, %u steps --\n",
                  facts->model, facts->type, facts->device, facts->images, facts->steps);
    print_roof(out, facts->roof);
    (void)fprintf(out, "%-28s %-13s %-4s %10s %11s %7s %9s %9s %8s %6s\n", "layer", "op", "type",
                  "forward ms", "backward ms", "%", "GFLOP", "GFLOP/s", "GB/s", "roof%");
    for (uint32_t i = 0; i < profile->line_count; i++)
        print_line(out, profile, &profile->lines[i]);
    print_groups(out, profile);
    (void)fprintf(out,
                  "a step takes %.3f ms (%.0f images/s, world %u); timed layer by layer %.3f ms\n",
                  facts->step_ms, images_per_s(profile), facts->world, facts->profiled_step_ms);
    (void)fprintf(out, "\n%-28s %10s\n", "before the second step", "ms");
    for (uint32_t i = 0; i < facts->stage_count; i++)
        (void)fprintf(out, "%-28s %10.1f\n", facts->stages[i].name, facts->stages[i].ms);
    (void)fflush(out);
}

/* -- JSON -- */

static void put_text(struct buf *buf, const char *text)
{
    buf_add_text(buf, "\"");
    for (const char *at = text; *at != '\0'; at++) {
        const unsigned char c = (unsigned char)*at;

        if (c == '"' || c == '\\')
            buf_printf(buf, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            buf_add_text(buf, "?");
        else
            buf_add(buf, at, 1);
    }
    buf_add_text(buf, "\"");
}

static void put_named(struct buf *buf, const char *name, const char *text)
{
    buf_printf(buf, "\"%s\": ", name);
    put_text(buf, text);
    buf_add_text(buf, ", ");
}

static void put_line(struct buf *buf, const struct profile *profile,
                     const struct profile_line *line)
{
    const double ms = ms_of(line), roof = profile_roof_share(profile, line);

    buf_add_text(buf, "{");
    put_named(buf, "name", line->name);
    put_named(buf, "op", line->op);
    put_named(buf, "type", line->type);
    put_named(buf, "group", profile_group_name(line->group));
    buf_printf(buf,
               "\"beside\": %s, \"forward_ms\": %.6f, \"backward_ms\": %.6f, \"gflop\": %.6f, "
               "\"gbytes\": %.6f, \"gflop_per_s\": %.3f, \"gb_per_s\": %.3f, \"roof_share\": ",
               line->is_beside ? "true" : "false", line->forward_ms, line->backward_ms,
               line->flop * 1e-9, line->bytes * 1e-9, giga_per_s(line->flop, ms),
               giga_per_s(line->bytes, ms));
    if (roof >= 0.0)
        buf_printf(buf, "%.4f}", roof);
    else
        buf_add_text(buf, "null}");
}

static void put_facts(struct buf *buf, const struct profile *profile)
{
    const struct profile_facts *facts = &profile->facts;

    put_named(buf, "device", facts->device);
    put_named(buf, "model", facts->model);
    put_named(buf, "opt_level", facts->type);
    put_named(buf, "low_type", facts->half);
    buf_printf(buf,
               "\"rank\": %u, \"world\": %u, \"steps\": %u, \"images\": %u, \"step_ms\": %.6f, "
               "\"profiled_step_ms\": %.6f, \"images_per_s\": %.3f, \"sum_ms\": %.6f, "
               "\"rest_ms\": %.6f, \"net_bytes\": %zu, \"peak_rss_bytes\": %zu, "
               "\"begun_s\": %.6f,\n",
               facts->rank, facts->world, facts->steps, facts->images, facts->step_ms,
               facts->profiled_step_ms, images_per_s(profile), profile->sum_ms, profile->rest_ms,
               profile->net_bytes, profile->peak_rss_bytes, facts->begun_s);
    if (facts->roof == NULL)
        buf_add_text(buf, " \"roof\": null,\n");
    else
        buf_printf(buf,
                   " \"roof\": {\"name\": \"%s\", \"half_tflops\": %.1f, \"tf32_tflops\": %.1f, "
                   "\"float_tflops\": %.1f, \"memory_gb_s\": %.1f},\n",
                   facts->roof->name, facts->roof->half_tflops, facts->roof->tf32_tflops,
                   facts->roof->float_tflops, facts->roof->memory_gb_s);
}

static void put_profile(struct buf *buf, const struct profile *profile)
{
    buf_add_text(buf, "{");
    put_facts(buf, profile);
    buf_add_text(buf, " \"groups_ms\": {");
    for (uint32_t g = 0; g < PROFILE_GROUPS; g++)
        buf_printf(buf, "%s\"%s\": %.6f", g == 0 ? "" : ", ",
                   profile_group_name((enum profile_group)g), profile->group_ms[g]);
    buf_add_text(buf, "},\n \"start_ms\": {");
    for (uint32_t i = 0; i < profile->facts.stage_count; i++)
        buf_printf(buf, "%s\"%s\": %.3f", i == 0 ? "" : ", ", profile->facts.stages[i].name,
                   profile->facts.stages[i].ms);
    buf_add_text(buf, "},\n \"layers\": [");
    for (uint32_t i = 0; i < profile->line_count; i++) {
        buf_add_text(buf, i == 0 ? "\n  " : ",\n  ");
        put_line(buf, profile, &profile->lines[i]);
    }
    buf_add_text(buf, "\n ]}\n");
}

enum status profile_write(const char *path, const struct profile *profile, struct err *err)
{
    struct buf buf = {0};
    enum status status = STATUS_OK;
    FILE *file;

    put_profile(&buf, profile);
    if (buf.failed) {
        buf_free(&buf);
        return err_set(err, STATUS_MEMORY, 0, "no memory to write %.120s", path);
    }
    file = fopen(path, "we");
    if (file == NULL) {
        status = err_set(err, STATUS_IO, errno, "--profile-json %.100s: cannot open: %s", path,
                         strerror(errno));
    } else {
        const bool is_written = fwrite(buf.bytes, 1, buf.byte_count, file) == buf.byte_count;

        if (fclose(file) != 0 || !is_written)
            status = err_set(err, STATUS_IO, errno, "--profile-json %.100s: cannot write: %s", path,
                             strerror(errno));
    }
    buf_free(&buf);
    return status;
}
