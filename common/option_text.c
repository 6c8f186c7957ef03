/* The value of an option as text. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/options.h"

static void add_texts(const struct option_texts *texts, struct buf *out)
{
    for (uint32_t i = 0; i < texts->count; i++)
        buf_printf(out, "%s%s", i > 0 ? " " : "", texts->items[i]);
}

/* Tries two numbers of digits and uses the shorter one that reads back as the same value. */
static void add_real(double value, bool is_f32, struct buf *out)
{
    char text[40];

    (void)snprintf(text, sizeof text, "%.*g", is_f32 ? 6 : 15, value);
    if (is_f32 ? strtof(text, NULL) != (float)value : strtod(text, NULL) != value)
        (void)snprintf(text, sizeof text, "%.*g", is_f32 ? 9 : 17, value);
    buf_add_text(out, text);
}

bool options_value_text(const struct option_row *row, const void *from, struct buf *out)
{
    const void *at = (const char *)from + row->offset;
    uint32_t u32 = 0;
    uint64_t u64 = 0;
    float f32 = 0;
    double f64 = 0;

    switch (row->kind) {
    case OPTION_FLAG:
        buf_add_text(out, *(const bool *)at ? "on" : "off");
        return true;
    case OPTION_U32:
    case OPTION_WORD:
        (void)memcpy(&u32, at, sizeof u32);
        buf_printf(out, "%" PRIu32, u32);
        return true;
    case OPTION_U64:
    case OPTION_DURATION:
    case OPTION_SIZE:
        (void)memcpy(&u64, at, sizeof u64);
        buf_printf(out, "%" PRIu64, u64);
        return true;
    case OPTION_F32:
        (void)memcpy(&f32, at, sizeof f32);
        add_real((double)f32, true, out);
        return true;
    case OPTION_F64:
        (void)memcpy(&f64, at, sizeof f64);
        add_real(f64, false, out);
        return true;
    case OPTION_TEXT:
        if (*(const char *const *)at == NULL)
            return false;
        buf_add_text(out, *(const char *const *)at);
        return true;
    case OPTION_TEXTS:
        add_texts(at, out);
        return true;
    case OPTION_IGNORED:
        return false;
    }
    assert(row->kind <= OPTION_IGNORED);
    return false;
}
