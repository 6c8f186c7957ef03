/* What the files of the reader share; private to worker/model_file*.c. */
#ifndef WORKER_MODEL_FILE_PARTS_H
#define WORKER_MODEL_FILE_PARTS_H

#include "worker/model_file.h"

struct cJSON;

#define MODEL_FILE_SHOWN 48 /* of a text from the file in an error */

/* `text` with nothing in it that could upset a terminal, cut. */
void model_file_shown(const char *text, char shown[MODEL_FILE_SHOWN]);
/* 1 to `length_max` letters, digits, "_", "-" and single inner dots. */
bool model_file_is_name(const char *text, size_t length_max);
/* A whole number in range into `*number`; false: it is something else. */
bool model_file_whole(const struct cJSON *value, uint32_t min, uint32_t max, uint32_t *number);
/* `item` of the list "layers" into file->layers[file->layer_count]. */
enum status model_file_read_layer(struct model_file *file, const struct cJSON *item,
                                  struct err *err);

#endif
