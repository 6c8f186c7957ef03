/* Lists of hashes. See fetch.h. */
#include "worker/data/fetch/fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char hex_digits[] = "0123456789abcdef";
static const char name_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789._-+";

/* "HASH  NAME", or "HASH *NAME" as in md5sum --binary. */
static enum status parse_line(const char *line, size_t line_bytes, size_t number, const char *path,
                              struct fetch_item *item, struct err *err)
{
    size_t hash_bytes = strspn(line, hex_digits), name_at = hash_bytes + 2, name_bytes;

    *item = (struct fetch_item){.byte_count = 0};
    if ((hash_bytes != 32 && hash_bytes != 64) || line_bytes <= name_at ||
        line[hash_bytes] != ' ' || (line[hash_bytes + 1] != ' ' && line[hash_bytes + 1] != '*'))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%.120s line %zu: expected a hash and a name, as md5sum or sha256sum "
                       "print them",
                       path, number);
    name_bytes = line_bytes - name_at;
    if (name_bytes >= sizeof item->name || line[name_at] == '.' ||
        strspn(line + name_at, name_letters) < name_bytes)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%.120s line %zu: a name has up to %zu of letters, digits and ._-+, and "
                       "does not begin with a dot",
                       path, number, sizeof item->name - 1);
    memcpy(item->hash, line, hash_bytes);
    memcpy(item->name, line + name_at, name_bytes);
    return STATUS_OK;
}

static size_t count_lines(const char *text)
{
    size_t count = 1;

    for (; *text != '\0'; text++)
        count += *text == '\n';
    return count;
}

enum status fetch_parse_sums(const char *text, const char *path, struct fetch_item **items,
                             size_t *count, struct err *err)
{
    size_t number = 1;
    enum status status = STATUS_OK;

    *count = 0;
    *items = calloc(count_lines(text), sizeof **items);
    if (*items == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%.120s: no memory for it", path);
    for (const char *line = text; status == STATUS_OK && *line != '\0'; number++) {
        size_t line_bytes = strcspn(line, "\n"), length = line_bytes;

        if (length > 0 && line[length - 1] == '\r')
            length--;
        if (length > 0)
            status = parse_line(line, length, number, path, &(*items)[(*count)++], err);
        line += line_bytes + (line[line_bytes] == '\n');
    }
    if (status == STATUS_OK && *count == 0)
        status = err_set(err, STATUS_BAD_INPUT, 0, "%.120s: no hash in it", path);
    if (status != STATUS_OK) {
        free(*items);
        *items = NULL;
        *count = 0;
    }
    return status;
}
