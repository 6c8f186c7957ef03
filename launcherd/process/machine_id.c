#include "launcherd/process/machine_id.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/io/read_all.h"
#include "launcherd/process/sha256.h"

#define USE "ddp launcherd machine 1"

enum { TEXT_MAX = MACHINE_CARD_BYTES, ID_BYTES = 16 };

/* The first line of a file, at most 63 bytes; false: it cannot be read. */
static bool read_line(const char *path, char text[TEXT_MAX])
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read_all(fd, text, TEXT_MAX - 1) : -1;

    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return got > 0;
}

/* Hexadecimal digits and hyphens, not all of them 0 or all f, as firmware without an id has them
 * ("uninitialized" stands in /etc/machine-id before the first boot). */
static bool is_id(const char *text)
{
    bool has_other = false;
    char first = '\0';

    for (; text != NULL && *text != '\0'; text++) {
        if (*text == '-')
            continue;
        if (!isxdigit((unsigned char)*text))
            return false;
        first = first == '\0' ? *text : first;
        has_other = has_other || *text != first;
    }
    return has_other;
}

/* Ids that firmware has on all boards of a kind, where nobody has written one. */
static bool is_everywhere(const char *text)
{
    static const char *const ids[] = {
        "03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009",
        "02000300-0400-0500-0006-000700080009", "4c4c4544-0000-2010-8020-80c04f202020",
        "fefefefe-fefe-fefe-fefe-fefefefefefe", "12345678-1234-5678-90ab-cddeefaabbcc",
        "12345678-1234-1234-1234-123456789abc", "01234567-89ab-cdef-0123-456789abcdef",
        "11111111-2222-3333-4444-555555555555", "00000000-0000-0000-0000-000000000001"};

    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (strcasecmp(text, ids[i]) == 0)
            return true;
    return false;
}

void machine_id_of(const struct machine_facts *facts, char id[IDENTITY_BYTES_MAX])
{
    char text[sizeof USE + 3 * TEXT_MAX];
    uint8_t hash[SHA256_BYTES];
    const bool has_firmware = is_id(facts->firmware) && !is_everywhere(facts->firmware);
    const bool has_card = facts->card != NULL;
    int length;

    id[0] = '\0';
    if (!has_firmware && !has_card)
        return;
    length = snprintf(text, sizeof text, "%s\n%.63s\n%.63s\n%.63s", USE,
                      is_id(facts->etc) ? facts->etc : "", has_firmware ? facts->firmware : "",
                      has_card ? facts->card : "");
    sha256(text, (size_t)length, hash);
    for (uint32_t i = 0; i < ID_BYTES; i++)
        (void)snprintf(id + 2 * (size_t)i, 3, "%02x", hash[i]);
}

/* Whether the kernel has the address from the card itself: NET_ADDR_PERM. It stands at 0 for devices of software, too,
 * but these have no hardware behind them. */
static bool is_of_hardware(const char *net, const char *name)
{
    char path[PATH_MAX], text[TEXT_MAX];

    (void)snprintf(path, sizeof path, "%.3000s/%.255s/device", net, name);
    if (access(path, F_OK) != 0)
        return false;
    (void)snprintf(path, sizeof path, "%.3000s/%.255s/addr_assign_type", net, name);
    return read_line(path, text) && strcmp(text, "0") == 0;
}

/* The beginnings that makers of virtual machines have of their own: such an address is in the machine's configuration, and
 * is copied with it. */
static bool is_virtual(const char *text)
{
    static const char *const makers[] = {"00:05:69", "00:0c:29", "00:50:56", "00:15:5d",
                                         "00:16:3e", "00:1c:42", "08:00:27"};

    for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++)
        if (strncmp(text, makers[i], strlen(makers[i])) == 0)
            return true;
    return false;
}

/* The address that a maker gave to one card: neither of a group (bit 0 of the first byte) nor set locally (bit 1), as
 * those of virtual machines are, IEEE 802, 8.2. All machines of one image may have the same: 52:54:00:12:34:56. */
static bool is_address(const char *text)
{
    return strlen(text) >= 2 && strspn(text, "0123456789abcdef:") == strlen(text) &&
           strchr("048c", text[1]) != NULL && strspn(text, "0:") != strlen(text) &&
           !is_virtual(text);
}

bool machine_card(const char *net, char card[MACHINE_CARD_BYTES])
{
    DIR *dir = opendir(net);
    char path[PATH_MAX], text[TEXT_MAX];

    card[0] = '\0';
    for (const struct dirent *entry = NULL; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.' || !is_of_hardware(net, entry->d_name))
            continue;
        (void)snprintf(path, sizeof path, "%.3000s/%.255s/address", net, entry->d_name);
        if (read_line(path, text) && is_address(text) &&
            (card[0] == '\0' || strcmp(text, card) < 0))
            (void)snprintf(card, MACHINE_CARD_BYTES, "%s", text);
    }
    if (dir != NULL)
        (void)closedir(dir);
    return card[0] != '\0';
}

void machine_id(char id[IDENTITY_BYTES_MAX])
{
    char etc[TEXT_MAX], firmware[TEXT_MAX], card[MACHINE_CARD_BYTES];
    const bool has_etc = read_line("/etc/machine-id", etc);
    const bool has_firmware = read_line("/sys/class/dmi/id/product_uuid", firmware);
    const bool has_card = machine_card("/sys/class/net", card);
    const struct machine_facts facts = {.etc = has_etc ? etc : NULL,
                                        .firmware = has_firmware ? firmware : NULL,
                                        .card = has_card ? card : NULL};

    machine_id_of(&facts, id);
}
