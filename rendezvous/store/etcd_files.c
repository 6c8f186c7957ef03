/* Checks TLS files before the first connection. libcurl would try a bad file again with each
 * request, and waiting does not repair it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/openssl_library.h"
#include "rendezvous/store/etcd_place.h"

/* NULL: failed, and `err` says why. */
static FILE *open_file(const char *option, const char *path, struct err *err)
{
    FILE *file = fopen(path, "re");

    if (file == NULL)
        (void)err_set(err, STATUS_BAD_INPUT, errno,
                      "%s: cannot read %.120s: %s: name a file that the user of this process may "
                      "read",
                      option, path, strerror(errno));
    return file;
}

/* The first certificate of the file. */
static enum status read_certificate(const struct openssl_library *openssl, const char *option,
                                    const char *path, X509 **certificate, struct err *err)
{
    FILE *file = open_file(option, path, err);

    if (file == NULL)
        return STATUS_BAD_INPUT;
    *certificate = openssl->pem_read_x509(file, NULL, NULL, NULL);
    (void)fclose(file);
    openssl->err_clear_error();
    if (*certificate == NULL)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: %.120s has no certificate that can be read: it must be in PEM form "
                       "(-----BEGIN CERTIFICATE-----)",
                       option, path);
    return STATUS_OK;
}

/* Never ask for a passphrase: nobody is there to type it. */
static int no_passphrase(char *bytes, int size, int is_writing, void *context)
{
    (void)bytes, (void)size, (void)is_writing, (void)context;
    return -1;
}

static enum status read_key(const struct openssl_library *openssl, const char *path, EVP_PKEY **key,
                            struct err *err)
{
    FILE *file = open_file("--store-key", path, err);

    if (file == NULL)
        return STATUS_BAD_INPUT;
    *key = openssl->pem_read_private_key(file, NULL, no_passphrase, NULL);
    (void)fclose(file);
    openssl->err_clear_error();
    if (*key == NULL)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--store-key: %.120s has no private key that can be read: it must be in PEM "
                       "form, without a passphrase",
                       path);
    return STATUS_OK;
}

static enum status check_pair(const struct openssl_library *openssl, const char *certificate_path,
                              const char *key_path, struct err *err)
{
    X509 *certificate = NULL;
    EVP_PKEY *key = NULL;
    enum status status =
        read_certificate(openssl, "--store-cert", certificate_path, &certificate, err);

    if (status == STATUS_OK)
        status = read_key(openssl, key_path, &key, err);
    if (status == STATUS_OK && openssl->x509_check_private_key(certificate, key) != 1)
        status = err_set(err, STATUS_BAD_INPUT, 0,
                         "--store-key: %.80s is not the private key of the certificate in %.80s: "
                         "give the two that were made together",
                         key_path, certificate_path);
    openssl->err_clear_error();
    openssl->x509_free(certificate);
    openssl->evp_pkey_free(key);
    return status;
}

bool etcd_files_left(const char *path, int64_t *left_s)
{
    struct err err;
    const struct openssl_library *openssl = openssl_library(&err);
    X509 *certificate = NULL;
    int days = 0, seconds = 0;
    bool is_known;

    if (openssl == NULL || read_certificate(openssl, "", path, &certificate, &err) != STATUS_OK)
        return false;
    is_known = openssl->asn1_time_diff(&days, &seconds, NULL,
                                       openssl->x509_get0_not_after(certificate)) == 1;
    openssl->x509_free(certificate);
    *left_s = (int64_t)days * 86400 + seconds;
    return is_known;
}

enum status etcd_files_check(const struct etcd_options *options, struct err *err)
{
    const struct openssl_library *openssl;
    X509 *authority = NULL;
    enum status status = STATUS_OK;

    if (options->ca_path == NULL && options->cert_path == NULL)
        return STATUS_OK;
    openssl = openssl_library(err);
    if (openssl == NULL)
        return STATUS_LIBRARY;
    if (options->ca_path != NULL)
        status = read_certificate(openssl, "--store-ca", options->ca_path, &authority, err);
    openssl->x509_free(authority);
    if (status == STATUS_OK && options->cert_path != NULL)
        status = check_pair(openssl, options->cert_path, options->key_path, err);
    return status;
}
