#include "launcherd/process/machine_id.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcherd/process/sha256.h"

#define USE "ddp launcherd machine 1"

enum { TEXT_MAX = 64, ID_BYTES = 16 };

/* The first line of a file, at most 63 bytes; false: it cannot be read. */
static bool read_line(const char *path, char text[TEXT_MAX])
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, TEXT_MAX - 1) : -1;

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

void machine_id_of(const char *etc, const char *firmware, bool in_container,
                   char id[IDENTITY_BYTES_MAX])
{
    char text[sizeof USE + 2 * TEXT_MAX];
    uint8_t hash[SHA256_BYTES];
    const bool has_firmware = is_id(firmware), has_etc = is_id(etc);
    int length;

    id[0] = '\0';
    if (!has_firmware && (!has_etc || in_container))
        return;
    length = snprintf(text, sizeof text, "%s\n%.63s\n%.63s", USE, has_etc ? etc : "",
                      has_firmware ? firmware : "");
    sha256(text, (size_t)length, hash);
    for (uint32_t i = 0; i < ID_BYTES; i++)
        (void)snprintf(id + 2 * (size_t)i, 3, "%02x", hash[i]);
}

/* Docker and podman leave a file, systemd and podman a variable, Kubernetes another one. */
static bool is_in_container(void)
{
    return access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 ||
           getenv("container") != NULL || getenv("KUBERNETES_SERVICE_HOST") != NULL;
}

void machine_id(char id[IDENTITY_BYTES_MAX])
{
    char etc[TEXT_MAX], firmware[TEXT_MAX];
    const bool has_etc = read_line("/etc/machine-id", etc);
    const bool has_firmware = read_line("/sys/class/dmi/id/product_uuid", firmware);

    machine_id_of(has_etc ? etc : NULL, has_firmware ? firmware : NULL, is_in_container(), id);
}
