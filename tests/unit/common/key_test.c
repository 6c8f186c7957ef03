#include "common/key.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

/* 32 bytes 0, 1, ... 31 in base64url. */
#define SECRET "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"

TEST(a_key_is_read_and_written)
{
    static const char *const urls[] = {
        "ddp://head.lab:7400/node0#" SECRET,
        "ddp://10.0.0.1:1/a#" SECRET,
        "ddp://[fe80::1%eth0]:65535/A.b_c-9#" SECRET,
        "ddp://head1:7400,10.0.0.2:7400,[fe80::1]:7401/node0#" SECRET,
    };

    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        char text[KEY_URL_BYTES_MAX], padded[KEY_URL_BYTES_MAX + 8];
        struct key key;
        struct err err;

        CHECK_EQ(key_parse(urls[i], &key, &err), STATUS_OK);
        for (int j = 0; j < KEY_SECRET_BYTES; j++)
            CHECK_EQ(key.secret[j], j);
        key_format(&key, text);
        CHECK_STR(text, urls[i]);
        (void)snprintf(padded, sizeof padded, " \t%s\r\n", urls[i]);
        CHECK_EQ(key_parse(padded, &key, &err), STATUS_OK);
        key_format(&key, text);
        CHECK_STR(text, urls[i]);
    }
}

TEST(the_longest_key_fits)
{
    char url[KEY_URL_BYTES_MAX], again[KEY_URL_BYTES_MAX], host[KEY_HOST_BYTES_MAX],
        name[NODE_NAME_BYTES_MAX];
    struct key key;
    struct err err;

    memset(host, 'h', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    (void)snprintf(url, sizeof url, "ddp://%s:65535/%s#" SECRET, host, name);
    CHECK_EQ(key_parse(url, &key, &err), STATUS_OK);
    key_format(&key, again);
    CHECK_STR(again, url);
}

TEST(what_is_no_key_is_refused_and_never_repeated)
{
    static const char *const urls[] = {
        "",
        "ddp://",
        "http://h:1/n#" SECRET,
        "ddp://h:1/n",
        "ddp://h:1,/n#" SECRET,
        "ddp://,h:1/n#" SECRET,
        "ddp://h:1,g/n#" SECRET,
        "ddp://h:1,h:2,h:3,h:4,h:5,h:6,h:7,h:8,h:9,h:10/n#" SECRET,
        "ddp://h:1#" SECRET,
        "ddp://h/n#" SECRET,
        "ddp://:1/n#" SECRET,
        "ddp://h:0/n#" SECRET,
        "ddp://h:65536/n#" SECRET,
        "ddp://h:1x/n#" SECRET,
        "ddp://h h:1/n#" SECRET,
        "ddp://h:1/#" SECRET,
        "ddp://h:1/n/m#" SECRET,
        "ddp://h:1/n m#" SECRET,
        "ddp://h:1/n#",
        "ddp://h:1/n#AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh",  /* cut */
        "ddp://h:1/n#" SECRET "A",                                 /* too long */
        "ddp://h:1/n#AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9", /* the last bits are not zero */
        "ddp://h:1/n#AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+", /* not of the url alphabet */
        "ddp://h:1/nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn#" SECRET,
    };

    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        struct err err = {.status = STATUS_OK};
        struct key key;

        if (key_parse(urls[i], &key, &err) != STATUS_BAD_INPUT)
            FAIL("%s was taken", urls[i]);
        CHECK(strstr(err.text, "AAECAwQF") == NULL);
    }
}

TEST(an_id_belongs_to_one_secret)
{
    uint8_t a[KEY_SECRET_BYTES], b[KEY_SECRET_BYTES];
    char id_a[KEY_ID_CHARS + 1], id_b[KEY_ID_CHARS + 1], again[KEY_ID_CHARS + 1];
    struct err err;

    CHECK_EQ(key_secret_new(a, &err), STATUS_OK);
    CHECK_EQ(key_secret_new(b, &err), STATUS_OK);
    CHECK(memcmp(a, b, sizeof a) != 0);
    CHECK_EQ(key_id(a, id_a, &err), STATUS_OK);
    CHECK_EQ(key_id(b, id_b, &err), STATUS_OK);
    CHECK_EQ(key_id(a, again, &err), STATUS_OK);
    CHECK_STR(again, id_a);
    CHECK(strcmp(id_a, id_b) != 0);
}

TEST(an_identity_is_split_where_it_was_joined)
{
    char identity[KEY_IDENTITY_BYTES_MAX], name[NODE_NAME_BYTES_MAX], id[KEY_ID_CHARS + 1],
        expected[KEY_ID_CHARS + 1];
    static const char *const bad[] = {"",
                                      ":",
                                      "n",
                                      "n:",
                                      "n:0123456789abcde",
                                      "n:0123456789abcdeg",
                                      "n:0123456789abcdef0",
                                      "n n:0123456789abcdef",
                                      ":0123456789abcdef"};
    struct key key;
    struct err err;

    CHECK_EQ(key_parse("ddp://h:1/node-7#" SECRET, &key, &err), STATUS_OK);
    CHECK_EQ(key_identity(&key, identity, &err), STATUS_OK);
    CHECK_EQ(key_id(key.secret, expected, &err), STATUS_OK);
    CHECK_EQ(key_identity_split(identity, strlen(identity), name, id, &err), STATUS_OK);
    CHECK_STR(name, "node-7");
    CHECK_STR(id, expected);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_EQ(key_identity_split(bad[i], strlen(bad[i]), name, id, &err), STATUS_BAD_INPUT);
    /* a NUL inside is no part of a name or of an id */
    CHECK_EQ(key_identity_split("n\0:0123456789abcdef", 19, name, id, &err), STATUS_BAD_INPUT);
    CHECK_EQ(key_identity_split("n:0123456\089abcdef", 18, name, id, &err), STATUS_BAD_INPUT);
}

TEST_MAIN
