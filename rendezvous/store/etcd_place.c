#include "rendezvous/store/etcd_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status read_password(struct etcd_place *place, const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), why = errno;
    struct stat info;
    ssize_t n = -1;

    if (fd >= 0 && fstat(fd, &info) == 0)
        n = read(fd, place->password, sizeof place->password - 1);
    if (fd >= 0) {
        why = errno;
        (void)close(fd);
    }
    if (n < 0)
        return err_set(err, STATUS_BAD_INPUT, why,
                       "--store-password-file: cannot read %.120s: %s: name a file that the user "
                       "of this process may read",
                       path, strerror(why));
    if ((info.st_mode & 0077) != 0)
        return err_set(err, STATUS_REFUSED, 0,
                       "--store-password-file: others may read %.150s: chmod 600 it", path);
    place->password[n] = '\0';
    place->password[strcspn(place->password, "\r\n")] = '\0';
    if (place->password[0] == '\0')
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--store-password-file: the first line of %.150s is empty", path);
    return STATUS_OK;
}

enum status etcd_place_make(struct etcd_place *place, const struct etcd_settings *settings,
                            struct err *err)
{
    struct etcd_options *options = &place->options;
    enum status status = etcd_url_parse(settings->url, options, place->prefix, err);

    if (status != STATUS_OK)
        return status;
    if (!options->uses_tls && (settings->ca_path != NULL || settings->cert_path != NULL))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--store-ca and --store-cert are for TLS: write --store etcds://...");
    if ((settings->cert_path != NULL) != (settings->key_path != NULL))
        return err_set(err, STATUS_BAD_INPUT, 0, "--store-cert and --store-key go together");
    if ((settings->user != NULL) != (settings->password_path != NULL))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--store-user and --store-password-file go together");
    options->ca_path = settings->ca_path;
    options->cert_path = settings->cert_path;
    options->key_path = settings->key_path;
    options->user = settings->user;
    if (settings->user == NULL)
        return STATUS_OK;
    options->password = place->password;
    return read_password(place, settings->password_path, err);
}
