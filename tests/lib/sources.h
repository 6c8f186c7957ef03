/* Reads of a source (worker/data/source.h) that must succeed. */
#ifndef TESTS_LIB_SOURCES_H
#define TESTS_LIB_SOURCES_H

#include "tests/lib/test.h"
#include "worker/data/source.h"

static inline int64_t sources_read(struct source *source, uint64_t epoch, int64_t index,
                                   uint8_t *image)
{
    struct err err = {.text = ""};
    void *reader = NULL;
    int64_t label = -1;

    if (source_reader_new(source, &reader, &err) != STATUS_OK ||
        source->ops->read(source, reader, epoch, index, image, &label, &err) != STATUS_OK)
        FAIL("sample %lld: %s", (long long)index, err.text);
    source_reader_free(source, &reader);
    CHECK(label >= 0 && label < source->shape.classes);
    return label;
}

#endif
