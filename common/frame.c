#include "common/frame.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

/* The first bytes of other protocols. As a byte count each is over 268 million, above every limit:
 * so no frame of ours begins with them. */
static const struct {
    char head[5];
    uint8_t head_bytes;
    const char *name;
} banners[] = {
    {"GET ", 4, "HTTP"},
    {"POST", 4, "HTTP"},
    {"PUT ", 4, "HTTP"},
    {"HEAD", 4, "HTTP"},
    {"DELE", 4, "HTTP"},
    {"OPTI", 4, "HTTP"},
    {"CONN", 4, "HTTP"},
    {"PATC", 4, "HTTP"},
    {"TRAC", 4, "HTTP"},
    {"PRI ", 4, "HTTP/2"},
    {"HTTP", 4, "HTTP"},
    {"SSH-", 4, "SSH"},
    {"\x16\x03\x00", 3, "TLS"},
    {"\x16\x03\x01", 3, "TLS"},
    {"\x16\x03\x02", 3, "TLS"},
    {"\x16\x03\x03", 3, "TLS"},
    {"\x15\x03\x01", 3, "TLS"}, /* an alert */
    {"\x15\x03\x02", 3, "TLS"},
    {"\x15\x03\x03", 3, "TLS"},
    {"{\"ty", 4, "JSON without a length before it"},
};

static const char *banner_name(const char *bytes)
{
    for (size_t i = 0; i < sizeof banners / sizeof banners[0]; i++)
        if (memcmp(bytes, banners[i].head, banners[i].head_bytes) == 0)
            return banners[i].name;
    return NULL;
}

enum status frame_next(const char *bytes, size_t byte_count, size_t payload_max,
                       const char **payload, size_t *payload_bytes, struct err *err)
{
    const unsigned char *head = (const unsigned char *)bytes;
    const char *banner;
    uint32_t count;

    assert(payload_max > 0 && payload_max < 0x10000000u); /* below every banner */
    if (byte_count < FRAME_HEAD_BYTES)
        return STATUS_BUSY;
    count = (uint32_t)head[0] << 24 | (uint32_t)head[1] << 16 | (uint32_t)head[2] << 8 | head[3];
    if (count == 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "a frame of 0 bytes");
    if (count > payload_max) {
        banner = banner_name(bytes);
        if (banner != NULL)
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "the peer speaks %s, not this program's protocol", banner);
        return err_set(err, STATUS_TOO_BIG, 0, "a frame of %u bytes, at most %zu are allowed here",
                       count, payload_max);
    }
    if (byte_count - FRAME_HEAD_BYTES < count)
        return STATUS_BUSY;
    *payload = bytes + FRAME_HEAD_BYTES;
    *payload_bytes = count;
    return STATUS_OK;
}

void frame_head(size_t payload_bytes, char head[FRAME_HEAD_BYTES])
{
    assert(payload_bytes <= UINT32_MAX);
    head[0] = (char)(payload_bytes >> 24 & 0xff);
    head[1] = (char)(payload_bytes >> 16 & 0xff);
    head[2] = (char)(payload_bytes >> 8 & 0xff);
    head[3] = (char)(payload_bytes & 0xff);
}
