/* Parts of the reader of model files: file.c reads the top, file_layer.c one entry of the list
 * "layers", file_value.c single values. file_build.c makes the graph. */
#ifndef WORKER_MODEL_INTERNAL_H
#define WORKER_MODEL_INTERNAL_H

#include "worker/model/file.h"

struct cJSON;

#define MODEL_FILE_SHOWN 48 /* bytes of a text from the file that an error shows */

/* -- file_value.c -- */

/* `text` for an error: printable, and cut to fit. */
void model_file_shown(const char *text, char shown[MODEL_FILE_SHOWN]);
/* Whether `text` is a name: 1 to `length_max` letters, digits, "_", "-" and single dots within. */
bool model_file_is_name(const char *text, size_t length_max);
/* A whole number from `min` to `max` into *number; false: `value` is something else. */
bool model_file_whole(const struct cJSON *value, uint32_t min, uint32_t max, uint32_t *number);
/* Whether an earlier member of `object` has the name of `member`. */
bool model_file_is_repeated(const struct cJSON *object, const struct cJSON *member);

/* -- file_layer.c -- */

/* Reads `item` of the list "layers" into file->layers[file->layer_count]. */
enum status model_file_read_layer(struct model_file *file, const struct cJSON *item,
                                  struct err *err);

#endif
