#include "common/status.h"

#include <stdarg.h>
#include <stdio.h>

const char *status_name(enum status status)
{
    switch (status) {
#define STATUS_CASE(name, words)                                                                   \
    case STATUS_##name:                                                                            \
        return #name;
        STATUS_TABLE(STATUS_CASE)
#undef STATUS_CASE
    }
    return "UNKNOWN";
}

void err_fill(struct err *err, enum status status, int code, const char *format, ...)
{
    va_list args;

    if (err == NULL)
        return;
    err->status = status;
    err->code = code;
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
}
