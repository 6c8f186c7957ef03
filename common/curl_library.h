/* libcurl, loaded when it is needed: it brings thirty libraries. */
#ifndef COMMON_CURL_LIBRARY_H
#define COMMON_CURL_LIBRARY_H

#include <curl/curl.h>

#include "common/dl_library.h"
#include "common/status.h"

/* X(member, function) */
#define CURL_LIBRARY_FUNCTIONS(X)                                                                  \
    X(global_init, curl_global_init)                                                               \
    X(global_cleanup, curl_global_cleanup)                                                         \
    X(easy_init, curl_easy_init)                                                                   \
    X(easy_cleanup, curl_easy_cleanup)                                                             \
    X(easy_perform, curl_easy_perform)                                                             \
    X(easy_strerror, curl_easy_strerror)                                                           \
    X(easy_setopt, curl_easy_setopt)                                                               \
    X(easy_getinfo, curl_easy_getinfo)                                                             \
    X(slist_append, curl_slist_append)                                                             \
    X(slist_free_all, curl_slist_free_all)

/* curl.h also defines macros of these names that check types. Calls through these pointers bypass
 * them. */
struct curl_library {
    void *handle; /* of dlopen; NULL: not loaded */
    CURL_LIBRARY_FUNCTIONS(DL_MEMBER)
};

/* `needed_by` begins the error message ("downloads need"), `otherwise` ends it ("..., or download
 * the files in another way"). Errors: STATUS_LIBRARY; then there is nothing to close. */
enum status curl_library_open(struct curl_library *library, const char *needed_by,
                              const char *otherwise, struct err *err);
void curl_library_close(struct curl_library *library);

#endif
