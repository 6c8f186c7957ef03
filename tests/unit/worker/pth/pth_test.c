/* Files of torch.save, made by hand: what is read, and what hostile ones are answered. The files of PyTorch
 * itself are in tests/pytorch/pth.py. */
#include "worker/pth/pth.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/buf.h"
#include "tests/lib/test.h"
#include "worker/data/fileio.h"
#include "worker/pth/little.h"

/* -- making files -- */

#define PROTO "\x80\x02"
#define DICT "ccollections\nOrderedDict\n)R"
#define REBUILD "ctorch._utils\n_rebuild_tensor_v2\n("
#define FLOATS "ctorch\nFloatStorage\n"
/* A persistent id for storage "0", of `count` values; the numbers are BININT1. */
#define STORAGE(class_name, count)                                                                 \
    "(X\x07\0\0\0storage" class_name "X\x01\0\0\0"                                                 \
    "0X\x03\0\0\0cpuK" count "tQ"
#define FLAGS "\x89" DICT /* requires_grad, backward_hooks */
/* A whole tensor: offset, size, stride. */
#define TENSOR(class_name, count, offset, size, stride)                                            \
    REBUILD STORAGE(class_name, count) "K" offset "(" size "t(" stride "t" FLAGS "tR"
#define KEY_A "X\x01\0\0\0a"
#define KEY_B "X\x01\0\0\0b"
#define FILE_OF(items) PROTO DICT "(" items "u."

struct bytes {
    const char *at;
    size_t count;
};
#define BYTES(text) ((struct bytes){(text), sizeof(text) - 1})

static const float values[6] = {1, 2, 3, 4, 5, 6};
static char path[512];

static void add(struct zip_writer *writer, const char *name, const void *bytes, size_t count)
{
    CHECK_EQ(zip_add(writer, name, bytes, count, NULL), STATUS_OK);
}

/* An archive with that pickle, six floats as storage "0", and one entry more. */
static void make_file(struct bytes pickle, const char *more_name, const char *more)
{
    struct buf directory = {0};
    struct zip_writer writer = {.directory = &directory};

    (void)snprintf(path, sizeof path, "%s/f.pth", test_dir());
    writer.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(writer.fd >= 0);
    add(&writer, "f/data.pkl", pickle.at, pickle.count);
    add(&writer, "f/data/0", values, sizeof values);
    if (more_name != NULL)
        add(&writer, more_name, more, strlen(more));
    CHECK_EQ(zip_finish(&writer, NULL), STATUS_OK);
    CHECK_EQ(close(writer.fd), 0);
}

/* The file is refused with these words, its name among them. */
static void check_refused(enum status status, const char *words)
{
    struct err err = {.text = ""};
    struct pth file;
    enum status got = pth_open(&file, path, &err);

    if (got != status || strstr(err.text, words) == NULL || strstr(err.text, "f.pth") == NULL)
        FAIL("expected %s \"%s\", got %s \"%s\"", status_name(status), words, status_name(got),
             err.text);
}

static void check_pickle(struct bytes pickle, enum status status, const char *words)
{
    make_file(pickle, NULL, NULL);
    check_refused(status, words);
}

static void open_good(struct pth *file)
{
    struct err err;

    if (pth_open(file, path, &err) != STATUS_OK)
        FAIL("%s", err.text);
}

static void check_values(struct pth *file, size_t index, const float *expected, size_t count)
{
    float *have = calloc(count + 1, sizeof *have);

    CHECK(have != NULL);
    CHECK_EQ(pth_count(&file->tensors[index]), count);
    CHECK_EQ(pth_read(file, &file->tensors[index], have, NULL), STATUS_OK);
    CHECK_BYTES(have, expected, count * sizeof *have);
    free(have);
}

/* -- what is read -- */

TEST(strides_and_offsets_pick_their_values)
{
    struct pth file;

    /* a: [2][3], transposed; b: from value 4, stride 0 */
    make_file(BYTES(FILE_OF(KEY_A TENSOR(FLOATS, "\x06", "\0", "K\x02K\x03", "K\x01K\x02")
                                KEY_B TENSOR(FLOATS, "\x06", "\x04", "K\x02", "K\0"))),
              NULL, NULL);
    open_good(&file);
    CHECK_EQ(file.tensor_count, 2);
    CHECK_STR(file.tensors[0].name, "a");
    CHECK_STR(file.taken, "");
    check_values(&file, 0, (const float[]){1, 3, 5, 2, 4, 6}, 6);
    check_values(&file, 1, (const float[]){5, 5}, 2);
    pth_close(&file);
}

TEST(a_scalar_and_an_empty_tensor)
{
    struct pth file;

    make_file(BYTES(FILE_OF(KEY_A TENSOR(FLOATS, "\x06", "\x05", "", "")
                                KEY_B TENSOR(FLOATS, "\x06", "\x06", "K\x02K\0", "K\x01K\x01"))),
              NULL, NULL);
    open_good(&file);
    CHECK_EQ(file.tensors[0].dim_count, 0);
    check_values(&file, 0, (const float[]){6}, 1);
    check_values(&file, 1, NULL, 0);
    pth_close(&file);
}

TEST(what_lies_deeper_is_found)
{
    struct pth file;

    /* {"epoch": 3, "state_dict": {"module.a": ...}}, with LONG1, floats, lists, None and BUILD */
    make_file(BYTES(PROTO "}(X\x05\0\0\0epoch\x8a\x02\x03\0"
                          "X\x04\0\0\0listN](K\x01G\0\0\0\0\0\0\0\0\x88"
                          "e0"),
              NULL, NULL);
    check_refused(STATUS_REFUSED, "opcode 0x30");
    make_file(BYTES(PROTO "}q\0(X\x05\0\0\0epoch\x8a\x02\x03\0"
                          "X\x04\0\0\0list](K\x01G\0\0\0\0\0\0\0\0\x88M\x01\x01J\xff\xff\xff\xff"
                          "eX\x03\0\0\0oneN"
                          "X\x0a\0\0\0state_dict" DICT "q\x01(X\x08\0\0\0module.a" TENSOR(
                              FLOATS, "\x06", "\0", "K\x06", "K\x01") "u}X\x01\0\0\0mh\x01"
                                                                      "sbu."),
              NULL, NULL);
    open_good(&file);
    CHECK_EQ(file.tensor_count, 1);
    CHECK_STR(file.tensors[0].name, "a");
    CHECK_STR(file.taken, "its state_dict, names without module.");
    check_values(&file, 0, values, 6);
    pth_close(&file);
}

/* -- pickles that are refused -- */

/* A Namespace of options and a numpy number, as scripts keep them: nothing is made of them. */
#define NAMESPACE "cargparse\nNamespace\n)\x81}X\x02\0\0\0lrK\x01sb"
#define DTYPE "cnumpy\ndtype\nX\x02\0\0\0f8\x89\x88\x87R(K\x03X\x01\0\0\0<NNNtb"
#define NUMBER "cnumpy.core.multiarray\nscalar\n" DTYPE "c_codecs\nencode\nX\0\0\0\0N\x86R\x86R"

TEST(code_is_refused_by_name)
{
    struct pth file;

    make_file(BYTES(PROTO "}(X\x05\0\0\0model" DICT "(" KEY_A TENSOR(
                  FLOATS, "\x06", "\0", "K\x06", "K\x01") "uX\x04\0\0\0args" NAMESPACE "X\x04\0\0\0"
                                                          "best" NUMBER "u."),
              NULL, NULL);
    open_good(&file);
    check_values(&file, 0, values, 6);
    pth_close(&file);
    check_pickle(BYTES(PROTO "cos\nsystem\n)\x81."), STATUS_REFUSED, "torch.load(");
    check_pickle(BYTES(PROTO "cos\nsystem\n(X\x04\0\0\0boomtR."), STATUS_REFUSED,
                 "GLOBAL os.system: refused");
    check_pickle(BYTES(PROTO "cbuiltins\neval\n."), STATUS_REFUSED, "GLOBAL builtins.eval");
    check_pickle(BYTES(PROTO "ctorch\nload\n."), STATUS_REFUSED, "GLOBAL torch.load");
    check_pickle(BYTES(PROTO "ctorch._utils\n_rebuild_tensor_v2\0\n."), STATUS_REFUSED, "refused");
    check_pickle(BYTES(PROTO "c\x1b[31m\nx\n."), STATUS_REFUSED, "GLOBAL ?[31m.x");
    check_pickle(BYTES(PROTO "(X\x02\0\0\0osX\x06\0\0\0system\x93."), STATUS_REFUSED,
                 "opcode 0x93 STACK_GLOBAL at byte 21");
    check_pickle(BYTES(PROTO "(ios\nsystem\n."), STATUS_REFUSED, "0x69 INST");
    check_pickle(BYTES(PROTO DICT ")\x81."), STATUS_REFUSED, "0x81 NEWOBJ");
    check_pickle(BYTES(PROTO "\x82\x01."), STATUS_REFUSED, "0x82 EXT1");
    check_pickle(BYTES("\x80\x04."), STATUS_UNSUPPORTED, "pickle protocol 4");
}

TEST(a_broken_machine_is_refused)
{
    check_pickle(BYTES(""), STATUS_BAD_INPUT, "without STOP");
    check_pickle(BYTES(PROTO), STATUS_BAD_INPUT, "without STOP");
    check_pickle(BYTES(PROTO "."), STATUS_BAD_INPUT, "other than one value");
    check_pickle(BYTES(PROTO "NN."), STATUS_BAD_INPUT, "other than one value");
    check_pickle(BYTES(PROTO "(N."), STATUS_BAD_INPUT, "other than one value");
    check_pickle(BYTES(PROTO "}.}"), STATUS_BAD_INPUT, "follows its end");
    check_pickle(BYTES(PROTO "t."), STATUS_BAD_INPUT, "no mark");
    check_pickle(BYTES(PROTO "\x87."), STATUS_BAD_INPUT, "too little");
    check_pickle(BYTES(PROTO "N(\x85."), STATUS_BAD_INPUT, "too little"); /* below the mark */
    check_pickle(BYTES(PROTO "(u."), STATUS_BAD_INPUT, "too little");
    check_pickle(BYTES(PROTO "(](NNu."), STATUS_BAD_INPUT, "a dict or a list");
    check_pickle(BYTES(PROTO "}(Nu."), STATUS_BAD_INPUT, "a dict or a list");
    check_pickle(BYTES(PROTO "}Na."), STATUS_BAD_INPUT, "a dict or a list");
    check_pickle(BYTES(PROTO "((NNs."), STATUS_BAD_INPUT, "too little");
    check_pickle(BYTES(PROTO "}((NNu."), STATUS_BAD_INPUT, "too little"); /* below a mark */
    check_pickle(BYTES(PROTO "h\0."), STATUS_BAD_INPUT, "never kept");
    check_pickle(BYTES(PROTO "Nq\x05h\x04."), STATUS_BAD_INPUT, "never kept");
    check_pickle(BYTES(PROTO "Nr\xff\xff\xff\x7f."), STATUS_TOO_BIG, "values");
    check_pickle(BYTES(PROTO "q\0."), STATUS_BAD_INPUT, "too little");
    check_pickle(BYTES(PROTO "X\xff\xff\xff\xff"
                             "a."),
                 STATUS_BAD_INPUT, "ends within");
    check_pickle(BYTES(PROTO "\x8a\xff"
                             "a."),
                 STATUS_BAD_INPUT, "ends within");
    check_pickle(BYTES(PROTO "J\0\0"), STATUS_BAD_INPUT, "ends within");
    check_pickle(BYTES(PROTO "ccollections\nOrdered"), STATUS_BAD_INPUT, "ends within");
    check_pickle(BYTES(PROTO "N)R."), STATUS_BAD_INPUT, "no function");
    check_pickle(BYTES(PROTO "ctorch\nfloat32\n)R."), STATUS_BAD_INPUT, "no function");
    check_pickle(BYTES(PROTO FLOATS ")R."), STATUS_BAD_INPUT, "no function");
    check_pickle(BYTES(PROTO "ccollections\nOrderedDict\nNR."), STATUS_BAD_INPUT, "arguments");
    check_pickle(BYTES(PROTO ")}b."), STATUS_REFUSED, "no OrderedDict");
    check_pickle(BYTES(PROTO "ctorch._utils\n_rebuild_parameter\nN\x85R."), STATUS_BAD_INPUT,
                 "no tensor");
}

TEST(a_tensor_stays_in_its_storage)
{
    static const struct {
        struct bytes pickle;
        const char *words;
    } cases[] = {
#define CASE(tensor, words) {{FILE_OF(KEY_A tensor), sizeof(FILE_OF(KEY_A tensor)) - 1}, words}
        CASE(TENSOR(FLOATS, "\x06", "\0", "K\x07", "K\x01"), "out of its storage"),
        CASE(TENSOR(FLOATS, "\x06", "\x01", "K\x06", "K\x01"), "out of its storage"),
        CASE(TENSOR(FLOATS, "\x06", "\0", "K\x02", "K\x06"), "out of its storage"),
        CASE(TENSOR(FLOATS, "\x06", "\x07", "K\0", "K\x01"), "out of its storage"),
        CASE(TENSOR(FLOATS, "\x06", "\x06", "", ""), "out of its storage"),
        CASE(TENSOR(FLOATS, "\x06", "\0", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\x02",
                    "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\x01"),
             "out of its storage"),
        CASE(TENSOR(FLOATS, "\x06", "\0", "K\x02K\x02",
                    "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"
                    "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"),
             "out of its storage"),
        /* 2 + 2 * (2^63 - 1) is 2^64: it must not become 0 */
        CASE(TENSOR(FLOATS, "\x06", "\x02", "K\x02K\x02",
                    "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"
                    "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"),
             "out of its storage"),
        CASE(TENSOR(FLOATS, "\x06", "\0", "K\x02", "J\xff\xff\xff\xff"), "counts"),
        CASE(TENSOR(FLOATS, "\x06", "\0", "J\xff\xff\xff\xff", "K\x01"), "counts"),
        CASE(TENSOR(FLOATS, "\x06", "\0", "N", "K\x01"), "counts"),
        CASE(TENSOR(FLOATS, "\x06", "\0", "K\x02", "K\x01K\x01"), "arguments"),
        CASE(TENSOR(FLOATS, "\x06", "\0", "K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01",
                    "K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01"),
             "9 dimensions"),
        CASE(TENSOR(FLOATS, "\x07", "\0", "K\x06", "K\x01"), "values of a"),
        CASE(TENSOR(FLOATS, "\x05", "\0", "K\x05", "K\x01"), "values of a"),
        CASE(TENSOR("ctorch\nDoubleStorage\n", "\x06", "\0", "K\x05", "K\x01"), "values of a"),
        CASE(TENSOR("ctorch\nSize\n", "\x06", "\0", "K\x05", "K\x01"), "storage of no type"),
        CASE(TENSOR("N", "\x06", "\0", "K\x05", "K\x01"), "not named as"),
        CASE("N", "its a is no tensor"),
#undef CASE
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make_file(cases[i].pickle, NULL, NULL);
        check_refused(strstr(cases[i].words, "dimensions") != NULL ? STATUS_TOO_BIG
                                                                   : STATUS_BAD_INPUT,
                      cases[i].words);
    }
}

#define GOOD TENSOR(FLOATS, "\x06", "\0", "K\x06", "K\x01")

TEST(names_are_names_and_unique)
{
    check_pickle(BYTES(FILE_OF("X\0\0\0\0" GOOD)), STATUS_BAD_INPUT, "no name");
    check_pickle(BYTES(FILE_OF("X\x01\0\0\0\xff" GOOD)), STATUS_BAD_INPUT, "no name");
    check_pickle(BYTES(FILE_OF("X\x02\0\0\0a\0" GOOD)), STATUS_BAD_INPUT, "no name");
    check_pickle(BYTES(FILE_OF("K\x01" GOOD)), STATUS_BAD_INPUT, "no name");
    check_pickle(BYTES(FILE_OF(KEY_A GOOD KEY_A GOOD)), STATUS_BAD_INPUT, "its a is there twice");
    check_pickle(BYTES(PROTO "}."), STATUS_BAD_INPUT, "no tensors");
    check_pickle(BYTES(PROTO "]."), STATUS_UNSUPPORTED, "expected a state_dict");
}

/* A list that contains itself, through the memo: nothing may follow it down. */
TEST(a_circle_ends)
{
    check_pickle(BYTES(PROTO "]q\0h\0a."), STATUS_UNSUPPORTED, "expected a state_dict");
    check_pickle(BYTES(PROTO "}q\0X\x0a\0\0\0state_dicth\0s."), STATUS_BAD_INPUT,
                 "state_dict is no tensor");
}

/* A million containers cost what a million bytes cost. */
TEST(too_many_values_end_with_a_limit)
{
    const size_t count = (1U << 20) + 10;
    char *pickle = malloc(count);

    CHECK(pickle != NULL);
    memset(pickle, 'N', count);
    check_pickle((struct bytes){pickle, count}, STATUS_TOO_BIG, "more than 1048576 values");
    memset(pickle, '(', count);
    check_pickle((struct bytes){pickle, count}, STATUS_BAD_INPUT, "without STOP");
    free(pickle);
}

/* -- archives that are refused -- */

TEST(other_kinds_are_named)
{
    make_file(BYTES(FILE_OF(KEY_A GOOD)), "f/byteorder", "big");
    check_refused(STATUS_UNSUPPORTED, "big-endian");
    make_file(BYTES(FILE_OF(KEY_A GOOD)), "f/constants.pkl", "x");
    check_refused(STATUS_UNSUPPORTED, "TorchScript");
    make_file(BYTES(FILE_OF(KEY_A GOOD)), "f/byteorder", "little");
    CHECK(pth_is_file(path));
    CHECK(!pth_is_file("/nowhere/x"));
    CHECK(!pth_is_file(test_source("LICENSE")));
}

/* Replaces `count` bytes at `at` from the end (negative) or the start of the file. */
static void patch(long at, const char *bytes, size_t count)
{
    FILE *file = fopen(path, "r+be");

    CHECK(file != NULL && fseek(file, at, at < 0 ? SEEK_END : SEEK_SET) == 0);
    CHECK_EQ(fwrite(bytes, 1, count, file), count);
    CHECK_EQ(fclose(file), 0);
}

#define END_AT (-22L)
#define LAST_NAME "f/data/0"
#define LAST_AT (END_AT - 46L - (long)(sizeof LAST_NAME - 1)) /* the last entry of the directory */

TEST(broken_archives_are_named)
{
    static const struct {
        long at;
        const char *bytes;
        size_t count;
        const char *words;
    } cases[] = {
        {END_AT, "x", 1, "its end is missing"},
        {END_AT + 4, "\x01", 1, "several disks"},
        {END_AT + 10, "\x03", 1, "fewer entries"},
        {END_AT + 10, "\xff\xff", 2, "fewer entries"},
        {END_AT + 12, "\xff\xff\xff\x7f", 4, "directory lies outside"},
        {END_AT + 16, "\xff\xff\xff\x7f", 4, "directory lies outside"},
        {END_AT + 20, "\x01", 1, "its end is missing"},
        {LAST_AT, "x", 1, "fewer entries"},
        {LAST_AT + 20, "\x17", 1, "two sizes"},
        {LAST_AT + 20, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, "lies outside"},
        {LAST_AT + 28, "\xff", 1, "is cut"},
        {LAST_AT + 30, "\xff", 1, "is cut"},
        {LAST_AT + 42, "\xff\xff\xff\x7f", 4, "lies outside"},
        {LAST_AT + 46, "f/data.pkl", 8, "values of a"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make_file(BYTES(FILE_OF(KEY_A GOOD)), NULL, NULL);
        patch(cases[i].at, cases[i].bytes, cases[i].count);
        check_refused(strstr(cases[i].words, "disks") != NULL ? STATUS_UNSUPPORTED
                                                              : STATUS_BAD_INPUT,
                      cases[i].words);
    }
}

/* An entry behind 5 GiB of nothing, with its sizes and its place in zip64 fields. */
static void add_far_entry(struct zip_writer *writer, uint64_t begin)
{
    static const char name[] = "f/data/0";
    struct buf local = {0}, *directory = writer->directory;
    uint64_t directory_begin;

    little_put(&local, 0x04034b50, 4);
    little_put(&local, 0, 8);
    little_put(&local, 0, 8);
    little_put(&local, 0, 6);
    little_put(&local, sizeof name - 1, 2);
    little_put(&local, 0, 2);
    buf_add(&local, name, sizeof name - 1);
    buf_add(&local, values, sizeof values);
    CHECK_EQ(pwrite(writer->fd, local.bytes, local.byte_count, (off_t)begin), local.byte_count);
    directory_begin = begin + local.byte_count;
    buf_free(&local);
    little_put(directory, 0x02014b50, 4);
    little_put(directory, 45, 8);
    little_put(directory, 0, 8); /* time, sum */
    little_put(directory, 0xffffffffffffffff, 8);
    little_put(directory, sizeof name - 1, 2);
    little_put(directory, 8 + 4 + 24, 2);
    little_put(directory, 0, 8);
    little_put(directory, 0, 2);
    little_put(directory, 0xffffffff, 4);
    buf_add(directory, name, sizeof name - 1);
    buf_add(directory, "FB\4\0ZZZZ", 8); /* another field first */
    little_put(directory, 1 | 24 << 16, 4);
    little_put(directory, sizeof values, 8);
    little_put(directory, sizeof values, 8);
    little_put(directory, begin, 8);
    {
        const uint64_t bytes = directory->byte_count;

        little_put(directory, 0x06064b50, 4);
        little_put(directory, 44, 8);
        little_put(directory, 0, 4 + 4);
        little_put(directory, 0, 4);
        little_put(directory, 2, 8);
        little_put(directory, 2, 8);
        little_put(directory, bytes, 8);
        little_put(directory, directory_begin, 8);
        little_put(directory, 0x07064b50, 4);
        little_put(directory, 0, 4);
        little_put(directory, directory_begin + bytes, 8);
        little_put(directory, 1, 4);
        little_put(directory, 0x06054b50, 4);
        little_put(directory, 0, 4);
        little_put(directory, 0xffffffff, 4);
        little_put(directory, 0xffffffffffffffff, 8);
        little_put(directory, 0, 2);
    }
    CHECK_EQ(pwrite(writer->fd, directory->bytes, directory->byte_count, (off_t)directory_begin),
             directory->byte_count);
}

TEST(zip64_reaches_behind_4_gib)
{
    struct bytes pickle = BYTES(FILE_OF(KEY_A GOOD));
    struct buf directory = {0};
    struct zip_writer writer = {.directory = &directory};
    struct pth file;

    (void)snprintf(path, sizeof path, "%s/f.pth", test_dir());
    writer.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(writer.fd >= 0);
    add(&writer, "f/data.pkl", pickle.at, pickle.count);
    add_far_entry(&writer, UINT64_C(5) << 30);
    CHECK_EQ(close(writer.fd), 0);
    buf_free(&directory);
    open_good(&file);
    check_values(&file, 0, values, 6);
    pth_close(&file);
    patch(-22L - 20 + 8, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8);
    check_refused(STATUS_BAD_INPUT, "zip64 end lies outside");
}

static void check_read_refused(long at, const char *bytes, size_t count, const char *words)
{
    struct pth file;
    struct err err = {.text = ""};
    float have[6];

    make_file(BYTES(FILE_OF(KEY_A GOOD)), NULL, NULL);
    patch(at, bytes, count);
    open_good(&file);
    CHECK(pth_read(&file, &file.tensors[0], have, &err) != STATUS_OK);
    if (strstr(err.text, words) == NULL)
        FAIL("expected \"%s\", got \"%s\"", words, err.text);
    pth_close(&file);
}

TEST(damaged_values_are_named)
{
    check_read_refused(LAST_AT + 16, "x", 1, "f/data/0 is damaged"); /* the sum */
    check_read_refused(LAST_AT + 8, "\x01", 1, "is encrypted");
    check_read_refused(LAST_AT + 10, "\x08", 1, "is compressed");
    check_read_refused(LAST_AT + 42, "\x01\0\0\0", 4, "not where its directory says");
    check_read_refused(LAST_AT - 46 - 10 - 24, "x", 1, "f/data/0 is damaged"); /* a value */
}

/* Without a sum (torch.serialization.set_crc32_options(False)) nothing is compared. */
TEST(no_sum_is_no_damage)
{
    struct pth file;

    make_file(BYTES(FILE_OF(KEY_A GOOD)), NULL, NULL);
    patch(LAST_AT + 16, "\0\0\0\0", 4);
    open_good(&file);
    check_values(&file, 0, values, 6);
    pth_close(&file);
}

TEST(a_cut_file_is_named_wherever_it_ends)
{
    long whole;

    make_file(BYTES(FILE_OF(KEY_A GOOD)), NULL, NULL);
    {
        FILE *file = fopen(path, "re");
        CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
        whole = ftell(file);
        CHECK_EQ(fclose(file), 0);
    }
    for (long bytes = whole - 1; bytes >= 4; bytes--) {
        CHECK_EQ(truncate(path, bytes), 0);
        check_refused(STATUS_BAD_INPUT, "damaged zip archive");
    }
    CHECK_EQ(truncate(path, 0), 0);
    check_refused(STATUS_BAD_INPUT, "not a file of torch.save");
}

/* -- what is written -- */

static enum status give(void *user, size_t index, void *bytes, struct err *err)
{
    (void)user;
    (void)err;
    memcpy(bytes, index == 0 ? (const void *)values : "\x07\0\0\0\0\0\0\0", index == 0 ? 24 : 8);
    return STATUS_OK;
}

TEST(what_is_written_is_read_again)
{
    static const struct pth_out tensors[] = {
        {.name = "w", .type = PTH_F32, .dim_count = 2, .dims = {2, 3}, .byte_count = 24},
        {.name = "n", .type = PTH_I64, .byte_count = 8}};
    const struct pth_content content = {tensors, 2, give, NULL};
    struct pth file;
    int fd;

    (void)snprintf(path, sizeof path, "%s/f.pth", test_dir());
    CHECK_EQ(fileio_create(path, &fd, NULL), STATUS_OK);
    CHECK_EQ(pth_write(fd, &content, NULL), STATUS_OK);
    CHECK_EQ(close(fd), 0);
    open_good(&file);
    CHECK_EQ(file.tensor_count, 2);
    CHECK_EQ(file.tensors[1].dims[1], 3);
    CHECK_EQ(file.tensors[1].strides[0], 3);
    check_values(&file, 0, (const float[]){7}, 1);
    check_values(&file, 1, values, 6);
    for (size_t i = 0; i < file.zip.entry_count; i++) {
        const struct zip_entry *entry = &file.zip.entries[i];
        unsigned char head[30];

        CHECK_EQ(fileio_read_at(file.fd, "f", head, sizeof head, entry->header_begin, NULL),
                 STATUS_OK);
        CHECK_EQ((entry->header_begin + 30 + head[26] + head[28]) % 64, 0);
    }
    pth_close(&file);
}

TEST_MAIN
