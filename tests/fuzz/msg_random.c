#include "tests/fuzz/msg_random.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"

/* Steele, Lea, Flood 2014: SplitMix64. */
uint64_t random_next(struct random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t random_below(struct random *random, uint64_t limit)
{
    return random_next(random) % limit;
}

static void *take(struct arena *arena, size_t byte_count)
{
    void *bytes = arena_alloc(arena, byte_count);

    assert(bytes != NULL);
    return bytes;
}

/* In min..max; a quarter of them at an end. */
static uint64_t unsigned_random(struct random *random, uint64_t min, uint64_t max)
{
    switch (random_below(random, 8)) {
    case 0:
        return min;
    case 1:
        return max;
    case 2: /* small ones */
        return min + random_below(random, max - min < 1000 ? max - min + 1 : 1000);
    default:
        return max - min == UINT64_MAX ? random_next(random)
                                       : min + random_below(random, max - min + 1);
    }
}

static int64_t signed_random(struct random *random, const struct msg_field *field)
{
    uint64_t span = field->max - (uint64_t)field->min; /* wraps as it should */

    return (int64_t)((uint64_t)field->min + unsigned_random(random, 0, span));
}

static double real_random(struct random *random, const struct msg_field *field)
{
    uint64_t bits;
    double value;

    switch (random_below(random, 6)) {
    case 0:
        return field->real_min;
    case 1:
        return field->real_max;
    case 2:
        return (double)random_below(random, 1000) / 7;
    default:
        bits = random_next(random);
        memcpy(&value, &bits, sizeof value);
        return value >= field->real_min && value <= field->real_max ? value : 0.1;
    }
}

static size_t put_char(struct random *random, enum msg_kind kind, size_t room, char *out)
{
    static const char *const wide[] = {"\xc3\xa9",         "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                       "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf", "\xef\xbf\xbd"};
    static const char plain[] = "abcXYZ019._-", odd[] = "\"\\/ {}[]:,'%~";
    const char *pick;

    switch (kind == MSG_KIND_NAME ? 0 : random_below(random, 8)) {
    case 0:
    case 1:
    case 2:
    case 3:
        *out = plain[random_below(random, sizeof plain - 1)];
        return 1;
    case 4:
        pick = wide[random_below(random, sizeof wide / sizeof wide[0])];
        if (strlen(pick) > room)
            break;
        for (size_t i = 0; pick[i] != '\0'; i++)
            out[i] = pick[i];
        return strlen(pick);
    case 5:
        if (kind == MSG_KIND_LINE)
            break;
        *out = (char)(1 + random_below(random, 31));
        return 1;
    default:
        break;
    }
    *out = odd[random_below(random, sizeof odd - 1)];
    return 1;
}

const char *text_random(struct random *random, struct arena *arena, enum msg_kind kind,
                        size_t byte_count)
{
    char *text = take(arena, byte_count + 1);

    for (size_t i = 0; i < byte_count;)
        i += put_char(random, kind, byte_count - i, text + i);
    return text;
}

static const char *item_random(struct random *random, struct arena *arena)
{
    return text_random(random, arena, MSG_KIND_TEXT, random_below(random, 20));
}

/* How many entries: mostly few, now and then as many as allowed. */
static uint32_t count_random(struct random *random, const struct msg_field *field)
{
    uint64_t span = field->max - (uint64_t)field->min;

    if (random_below(random, 64) == 0)
        return (uint32_t)field->max;
    return (uint32_t)((uint64_t)field->min + random_below(random, span < 4 ? span + 1 : 5));
}

static struct msg_text_list texts_random(struct random *random, struct arena *arena,
                                         const struct msg_field *field)
{
    uint32_t count = count_random(random, field);
    const char **items = take(arena, count * sizeof *items);

    for (uint32_t i = 0; i < count; i++)
        items[i] = item_random(random, arena);
    return (struct msg_text_list){.items = count > 0 ? items : NULL, .count = count};
}

static struct msg_pair_list pairs_random(struct random *random, struct arena *arena,
                                         const struct msg_field *field)
{
    uint32_t count = count_random(random, field);
    struct msg_pair *items = take(arena, count * sizeof *items);

    for (uint32_t i = 0; i < count; i++) {
        char *name = take(arena, 40);

        (void)snprintf(name, 40, "%s_%u", item_random(random, arena), i); /* the number: unique */
        if (!utf8_is_valid(name, strlen(name)))
            (void)snprintf(name, 40, "NAME_%u", i);
        items[i] = (struct msg_pair){.name = name, .value = item_random(random, arena)};
    }
    return (struct msg_pair_list){.items = count > 0 ? items : NULL, .count = count};
}

static struct msg_bytes bytes_random(struct random *random, struct arena *arena,
                                     const struct msg_field *field)
{
    uint32_t count = (uint32_t)unsigned_random(random, (uint64_t)field->min, field->max);
    uint8_t *items = take(arena, count);

    for (uint32_t i = 0; i < count; i++)
        items[i] = (uint8_t)random_next(random);
    return (struct msg_bytes){.items = count > 0 ? items : NULL, .count = count};
}

static void text_field_random(struct random *random, struct arena *arena,
                              const struct msg_field *field, const char **into)
{
    uint64_t byte_count = unsigned_random(random, (uint64_t)field->min, field->max);

    *into = text_random(random, arena, field->kind, byte_count);
}

static void field_random(struct random *random, struct arena *arena, const struct msg_field *field,
                         void *into)
{
    switch (field->kind) {
    case MSG_KIND_U32:
        *(uint32_t *)into = (uint32_t)unsigned_random(random, (uint64_t)field->min, field->max);
        return;
    case MSG_KIND_I32:
        *(int32_t *)into = (int32_t)signed_random(random, field);
        return;
    case MSG_KIND_F64:
        *(double *)into = real_random(random, field);
        return;
    case MSG_KIND_U64:
        *(uint64_t *)into = unsigned_random(random, (uint64_t)field->min, field->max);
        return;
    case MSG_KIND_I64:
        *(int64_t *)into = signed_random(random, field);
        return;
    case MSG_KIND_BOOL:
        *(bool *)into = random_below(random, 2) == 1;
        return;
    case MSG_KIND_TEXT:
    case MSG_KIND_LINE:
    case MSG_KIND_NAME:
        text_field_random(random, arena, field, into);
        return;
    case MSG_KIND_TEXTS:
        *(struct msg_text_list *)into = texts_random(random, arena, field);
        return;
    case MSG_KIND_PAIRS:
        *(struct msg_pair_list *)into = pairs_random(random, arena, field);
        return;
    case MSG_KIND_BYTES:
        *(struct msg_bytes *)into = bytes_random(random, arena, field);
        return;
    case MSG_KIND_ENUM: {
        uint32_t word = (uint32_t)random_below(random, field->names->count);

        memcpy(into, &word, sizeof word);
        return;
    }
    case MSG_KIND_LIST:
        break;
    }
    assert(field->kind != MSG_KIND_LIST); /* parts hold no lists */
}

static void list_random(struct random *random, struct arena *arena, const struct msg_field *field,
                        void *into)
{
    const struct msg_shape *shape = field->part();
    struct msg_list list = {.count = count_random(random, field)};
    char *items = take(arena, list.count * shape->byte_count);

    for (uint32_t i = 0; i < list.count; i++)
        for (uint32_t j = 0; j < shape->field_count; j++)
            field_random(random, arena, &shape->fields[j],
                         items + i * shape->byte_count + shape->fields[j].offset);
    list.items = list.count > 0 ? items : NULL;
    memcpy(into, &list, sizeof list);
}

void msg_random(struct random *random, struct arena *arena, enum msg_type type, struct msg *msg)
{
    const struct msg_shape *shape = msg_shape(type);

    memset(msg, 0, sizeof *msg);
    msg->type = type;
    for (uint32_t i = 0; i < shape->field_count; i++) {
        const struct msg_field *field = &shape->fields[i];
        void *into = (char *)msg + MSG_BODY_OFFSET + field->offset;

        if (field->kind == MSG_KIND_LIST)
            list_random(random, arena, field, into);
        else
            field_random(random, arena, field, into);
    }
}
