/* The text of a model file into a list of layers. cJSON stores no line numbers: they are counted by
 * walking text and tree together, and stored in `valueint` of each node, which is not used here. */
#include "worker/model/file.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/json_strict.h"
#include "worker/model/internal.h"

enum { DEPTH_MAX = 8, TOKENS_MAX = 40000 };

/* -- lines -- */

struct cursor {
    const char *at, *end;
    int line;
};

/* White space and punctuation between tokens. */
static bool is_between(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',' || c == ':' || c == ']' ||
           c == '}';
}

static void skip_between(struct cursor *cursor)
{
    while (cursor->at < cursor->end && is_between(*cursor->at))
        cursor->line += *cursor->at++ == '\n';
}

/* Skips a bracket, a string or another scalar. The text is valid JSON: strings end and have no line
 * breaks. */
static void skip_token(struct cursor *cursor)
{
    if (cursor->at == cursor->end)
        return;
    if (*cursor->at == '{' || *cursor->at == '[') {
        cursor->at++;
    } else if (*cursor->at == '"') {
        for (cursor->at++; cursor->at < cursor->end && *cursor->at != '"'; cursor->at++)
            cursor->at += *cursor->at == '\\';
        cursor->at++;
    } else {
        while (cursor->at < cursor->end && !is_between(*cursor->at))
            cursor->at++;
    }
}

/* Visits all nodes in the order of the text. A member of an object gets the line of its key. */
static void mark_lines(cJSON *root, const char *text, size_t byte_count)
{
    struct cursor cursor = {text, text + byte_count, 1};
    cJSON *parents[DEPTH_MAX + 1], *node = root;
    uint32_t depth = 0;

    while (node != NULL) {
        skip_between(&cursor);
        node->valueint = cursor.line;
        if (node->string != NULL) {
            skip_token(&cursor);
            skip_between(&cursor);
        }
        skip_token(&cursor);
        if (node->child != NULL) {
            assert(depth <= DEPTH_MAX); /* json_validate_at() checked the depth */
            parents[depth++] = node;
            node = node->child;
            continue;
        }
        while (node != root && node->next == NULL)
            node = parents[--depth];
        node = node == root ? NULL : node->next;
    }
}

static int line_of(const char *text, size_t at)
{
    int line = 1;

    for (size_t i = 0; i < at; i++)
        line += text[i] == '\n';
    return line;
}

static enum status parse_text(struct model_file *file, const char *text, size_t byte_count,
                              cJSON **root, struct err *err)
{
    static const struct json_limits limits = {DEPTH_MAX, TOKENS_MAX};
    struct err why;
    size_t at = 0;
    enum status status;

    if (byte_count > MODEL_FILE_BYTES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "%s: more than %u bytes", file->path,
                       MODEL_FILE_BYTES_MAX);
    status = json_validate_at(text, byte_count, &limits, &at, &why);
    if (status != STATUS_OK)
        return err_set(err, status, 0, "%s, line %d: %s", file->path, line_of(text, at), why.text);
    *root = cJSON_ParseWithLength(text, byte_count);
    if (*root == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory to read it", file->path);
    mark_lines(*root, text, byte_count);
    return STATUS_OK;
}

/* -- the top of the file -- */

static enum status fail(const struct model_file *file, const cJSON *node, struct err *err,
                        const char *what)
{
    return err_set(err, STATUS_BAD_INPUT, 0, "%s, line %d: %s", file->path, node->valueint, what);
}

static enum status take_name(struct model_file *file, const cJSON *value, struct err *err)
{
    if (!cJSON_IsString(value) || !model_file_is_name(value->valuestring, MODEL_FILE_NAME_MAX))
        return fail(file, value, err,
                    "\"name\" must be a text of 1 to 40 letters, digits, \"_\", \"-\" and \".\"");
    (void)snprintf(file->name, sizeof file->name, "%s", value->valuestring);
    return STATUS_OK;
}

static enum status take_count(struct model_file *file, const cJSON *value, uint32_t max,
                              uint32_t *count, struct err *err)
{
    char what[128];

    if (model_file_whole(value, 1, max, count))
        return STATUS_OK;
    (void)snprintf(what, sizeof what, "\"%s\" must be a whole number from 1 to %u", value->string,
                   max);
    return fail(file, value, err, what);
}

static enum status take_init(struct model_file *file, const cJSON *value, struct err *err)
{
    const char *text = cJSON_IsString(value) ? value->valuestring : "";

    file->init_torchvision = strcmp(text, "torchvision") == 0;
    if (!file->init_torchvision && strcmp(text, "torch") != 0)
        return fail(file, value, err, "\"init\" must be \"torch\" or \"torchvision\"");
    return STATUS_OK;
}

static enum status take_top(struct model_file *file, const cJSON *member, const cJSON **layers,
                            struct err *err)
{
    char shown[MODEL_FILE_SHOWN], what[160];

    if (strcmp(member->string, "name") == 0)
        return take_name(file, member, err);
    if (strcmp(member->string, "channels") == 0)
        return take_count(file, member, MODEL_FILE_CHANNELS_MAX, &file->channels, err);
    if (strcmp(member->string, "classes") == 0)
        return take_count(file, member, GRAPH_DIM_MAX, &file->classes, err);
    if (strcmp(member->string, "init") == 0)
        return take_init(file, member, err);
    if (strcmp(member->string, "layers") == 0) {
        *layers = member;
        return STATUS_OK;
    }
    model_file_shown(member->string, shown);
    (void)snprintf(what, sizeof what,
                   "no such field: \"%s\"; there are: name, channels, classes, init and layers",
                   shown);
    return fail(file, member, err, what);
}

static enum status read_top(struct model_file *file, const cJSON *root, const cJSON **layers,
                            struct err *err)
{
    char what[64];
    const cJSON *member;

    if (!cJSON_IsObject(root))
        return fail(file, root, err, "a model is an object: {\"layers\": [...]}");
    cJSON_ArrayForEach(member, root)
    {
        enum status status = take_top(file, member, layers, err);

        if (status != STATUS_OK)
            return status;
        if (model_file_is_repeated(root, member)) {
            (void)snprintf(what, sizeof what, "\"%s\" is there twice", member->string);
            return fail(file, member, err, what);
        }
    }
    if (*layers == NULL)
        return fail(file, root, err, "\"layers\" is missing: the list of layers");
    return STATUS_OK;
}

/* -- the list -- */

static enum status read_layers(struct model_file *file, const cJSON *layers, struct err *err)
{
    const cJSON *item;
    const int count = cJSON_GetArraySize(layers);
    enum status status = STATUS_OK;

    if (!cJSON_IsArray(layers) || count == 0)
        return fail(file, layers, err, "\"layers\" must be a list of at least one layer");
    if (count > GRAPH_LAYERS_MAX - 2)
        return err_set(err, STATUS_TOO_BIG, 0, "%s, line %d: %d layers, at most %d", file->path,
                       layers->valueint, count, GRAPH_LAYERS_MAX - 2);
    file->layers = calloc((size_t)count, sizeof *file->layers);
    if (file->layers == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for %d layers", file->path, count);
    cJSON_ArrayForEach(item, layers)
    {
        status = model_file_read_layer(file, item, err);
        if (status != STATUS_OK)
            return status;
        file->layer_count++;
    }
    return STATUS_OK;
}

/* The default name: "nets/small.json" is "small". */
static void name_by_path(struct model_file *file, const char *path)
{
    const char *base = strrchr(path, '/');
    size_t count;

    base = base == NULL ? path : base + 1;
    count = strlen(base);
    if (count > 5 && strcmp(base + count - 5, ".json") == 0)
        count -= 5;
    if (count > MODEL_FILE_NAME_MAX)
        count = MODEL_FILE_NAME_MAX;
    memcpy(file->name, base, count);
    file->name[count] = '\0';
    if (!model_file_is_name(file->name, MODEL_FILE_NAME_MAX))
        (void)snprintf(file->name, sizeof file->name, "model");
}

static struct model_file *new_file(const char *path)
{
    struct model_file *file = calloc(1, sizeof *file);
    const size_t count = strlen(path), room = 60;

    if (file == NULL)
        return NULL;
    (void)snprintf(file->path, sizeof file->path, "%s%s", count > room ? "..." : "",
                   count > room ? path + count - (room - 3) : path);
    name_by_path(file, path);
    return file;
}

enum status model_file_parse(struct model_file **out, const char *path, const char *text,
                             size_t byte_count, struct err *err)
{
    struct model_file *file = new_file(path);
    const cJSON *layers = NULL;
    cJSON *root = NULL;
    enum status status;

    *out = file;
    if (file == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a model");
    status = parse_text(file, text, byte_count, &root, err);
    if (status == STATUS_OK)
        status = read_top(file, root, &layers, err);
    if (status == STATUS_OK)
        status = read_layers(file, layers, err);
    cJSON_Delete(root);
    if (status != STATUS_OK)
        model_file_free(out);
    return status;
}

void model_file_free(struct model_file **file)
{
    if (*file == NULL)
        return;
    free((*file)->layers);
    free(*file);
    *file = NULL;
}
