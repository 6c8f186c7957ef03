/* Single values of a model file: names, whole numbers, text that is shown in errors. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/utf8.h"
#include "worker/model/internal.h"

void model_file_shown(const char *text, char shown[MODEL_FILE_SHOWN])
{
    utf8_printable(text, strlen(text), shown, MODEL_FILE_SHOWN);
}

bool model_file_is_name(const char *text, size_t length_max)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_-.";
    const size_t length = strlen(text);

    return length >= 1 && length <= length_max && strspn(text, allowed) == length &&
           text[0] != '.' && text[length - 1] != '.' && strstr(text, "..") == NULL;
}

bool model_file_whole(const cJSON *value, uint32_t min, uint32_t max, uint32_t *number)
{
    assert(min <= max);
    if (!cJSON_IsNumber(value) || !(value->valuedouble >= min && value->valuedouble <= max) ||
        floor(value->valuedouble) != value->valuedouble)
        return false;
    *number = (uint32_t)value->valuedouble;
    return true;
}

bool model_file_is_repeated(const cJSON *object, const cJSON *member)
{
    for (const cJSON *other = object->child; other != member; other = other->next)
        if (strcmp(other->string, member->string) == 0)
            return true;
    return false;
}
