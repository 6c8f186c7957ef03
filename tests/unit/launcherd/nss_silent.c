/* A service of the user database that does not answer, as that of a directory server whose daemon is
 * not running: libnss_silent.so.2 for glibc (nss(5)). */
#include <errno.h>
#include <nss.h>
#include <pwd.h>

enum nss_status _nss_silent_getpwnam_r(const char *name, struct passwd *entry, char *buffer,
                                       size_t byte_count, int *code);

enum nss_status _nss_silent_getpwnam_r(const char *name, struct passwd *entry, char *buffer,
                                       size_t byte_count, int *code)
{
    (void)name;
    (void)entry;
    (void)buffer;
    (void)byte_count;
    *code = ENOENT; /* of the service's socket */
    return NSS_STATUS_UNAVAIL;
}
