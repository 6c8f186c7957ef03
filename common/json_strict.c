#include "common/json_strict.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/limits.h"
#include "common/utf8.h"

/* -- repeated keys: cJSON has decoded the escapes, so "a" and "\u0061" are seen as one --------- */

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum status refuse_repeated_key(const char *key, struct err *err)
{
    char shown[64];

    utf8_printable(key, strlen(key), shown, sizeof shown);
    return err_set(err, STATUS_BAD_INPUT, 0, "JSON: the key \"%s\" is there twice", shown);
}

static enum status check_few_keys(const cJSON *object, struct err *err)
{
    for (const cJSON *a = object->child; a != NULL; a = a->next)
        for (const cJSON *b = a->next; b != NULL; b = b->next)
            if (strcmp(a->string, b->string) == 0)
                return refuse_repeated_key(a->string, err);
    return STATUS_OK;
}

static enum status check_many_keys(const cJSON *object, size_t count, struct err *err)
{
    enum status status = STATUS_OK;
    const char **keys = calloc(count, sizeof *keys);
    size_t i = 0;

    if (keys == NULL)
        return err_set(err, STATUS_MEMORY, 0, "JSON: no memory for %zu keys", count);
    for (const cJSON *child = object->child; child != NULL; child = child->next)
        keys[i++] = child->string;
    qsort(keys, count, sizeof *keys, compare_keys);
    for (i = 1; i < count && status == STATUS_OK; i++)
        if (strcmp(keys[i - 1], keys[i]) == 0)
            status = refuse_repeated_key(keys[i], err);
    free(keys);
    return status;
}

static enum status check_object(const cJSON *object, struct err *err)
{
    size_t count = 0;

    for (const cJSON *child = object->child; child != NULL; child = child->next)
        count++;
    return count <= 32 ? check_few_keys(object, err) : check_many_keys(object, count, err);
}

/* Every object of the tree, in order, with a stack of the nodes to go on from. */
static enum status check_tree(const cJSON *root, struct err *err)
{
    const cJSON *stack[JSON_DEPTH_CAP + 1];
    uint32_t depth = 0;

    stack[depth++] = root;
    while (depth > 0) {
        const cJSON *node = stack[--depth];

        if (cJSON_IsObject(node)) {
            enum status status = check_object(node, err);

            if (status != STATUS_OK)
                return status;
        }
        if (node->next != NULL && node != root)
            stack[depth++] = node->next;
        if (node->child != NULL) {
            assert(depth <= JSON_DEPTH_CAP);
            stack[depth++] = node->child;
        }
    }
    return STATUS_OK;
}

enum status json_strict_parse(const char *text, size_t byte_count, const struct json_limits *limits,
                              struct cJSON **out, struct err *err)
{
    enum status status = json_validate(text, byte_count, limits, err);
    const char *end = NULL;
    cJSON *root;

    *out = NULL;
    if (status != STATUS_OK)
        return status;
    root = cJSON_ParseWithLengthOpts(text, byte_count, &end, 0);
    if (root == NULL)
        return err_set(err, STATUS_MEMORY, 0, "JSON of %zu bytes: no memory to parse it",
                       byte_count);
    status = check_tree(root, err);
    if (status != STATUS_OK) {
        cJSON_Delete(root);
        return status;
    }
    *out = root;
    return STATUS_OK;
}

const struct cJSON *json_member(const struct cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}
