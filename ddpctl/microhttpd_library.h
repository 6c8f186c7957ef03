/* libmicrohttpd, which only `ddpctl http` loads: it needs GnuTLS and ten more libraries, which
 * would take a third of the start time of every verb. */
#ifndef DDPCTL_MICROHTTPD_LIBRARY_H
#define DDPCTL_MICROHTTPD_LIBRARY_H

#include <microhttpd.h>

#include "common/dl_library.h"
#include "common/status.h"

/* X(member, function) */
#define MICROHTTPD_LIBRARY_FUNCTIONS(X)                                                            \
    X(add_response_header, MHD_add_response_header)                                                \
    X(create_response_from_buffer, MHD_create_response_from_buffer)                                \
    X(destroy_response, MHD_destroy_response)                                                      \
    X(get_connection_info, MHD_get_connection_info)                                                \
    X(get_daemon_info, MHD_get_daemon_info)                                                        \
    X(get_timeout, MHD_get_timeout)                                                                \
    X(is_feature_supported, MHD_is_feature_supported)                                              \
    X(lookup_connection_value, MHD_lookup_connection_value)                                        \
    X(queue_response, MHD_queue_response)                                                          \
    X(resume_connection, MHD_resume_connection)                                                    \
    X(run, MHD_run)                                                                                \
    X(start_daemon, MHD_start_daemon)                                                              \
    X(stop_daemon, MHD_stop_daemon)                                                                \
    X(suspend_connection, MHD_suspend_connection)

struct microhttpd_library {
    void *handle; /* of dlopen; NULL: not loaded */
    MICROHTTPD_LIBRARY_FUNCTIONS(DL_MEMBER)
};

/* It stays loaded until the end of the process. STATUS_LIBRARY: it is not installed, or lacks a function. */
enum status microhttpd_library_open(struct microhttpd_library *library, struct err *err);

#endif
