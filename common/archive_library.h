/* libarchive, loaded when a tar is written or read (staged directories, tar shards, --fetch): it brings libxml2, ICU and libstdc++,
 * half of the time that the start of any program with it takes. */
#ifndef COMMON_ARCHIVE_LIBRARY_H
#define COMMON_ARCHIVE_LIBRARY_H

#include <archive.h>
#include <archive_entry.h>

#include "common/dl_library.h"
#include "common/status.h"

/* X(member, function) */
#define ARCHIVE_LIBRARY_FUNCTIONS(X)                                                               \
    X(get_errno, archive_errno)                                                                    \
    X(error_string, archive_error_string)                                                          \
    X(entry_new, archive_entry_new)                                                                \
    X(entry_free, archive_entry_free)                                                              \
    X(entry_filetype, archive_entry_filetype)                                                      \
    X(entry_hardlink, archive_entry_hardlink)                                                      \
    X(entry_pathname, archive_entry_pathname)                                                      \
    X(entry_pathname_utf8, archive_entry_pathname_utf8)                                            \
    X(entry_perm, archive_entry_perm)                                                              \
    X(entry_set_perm, archive_entry_set_perm)                                                      \
    X(entry_size, archive_entry_size)                                                              \
    X(entry_sparse_count, archive_entry_sparse_count)                                              \
    X(entry_set_pathname, archive_entry_set_pathname)                                              \
    X(entry_set_mode, archive_entry_set_mode)                                                      \
    X(entry_set_mtime, archive_entry_set_mtime)                                                    \
    X(entry_set_size, archive_entry_set_size)                                                      \
    X(entry_set_symlink, archive_entry_set_symlink)                                                \
    X(filter_bytes, archive_filter_bytes)                                                          \
    X(read_data, archive_read_data)                                                                \
    X(read_open_filename, archive_read_open_filename)                                              \
    X(read_support_filter_gzip, archive_read_support_filter_gzip)                                  \
    X(read_new, archive_read_new)                                                                  \
    X(read_free, archive_read_free)                                                                \
    X(read_support_format_tar, archive_read_support_format_tar)                                    \
    X(read_open_fd, archive_read_open_fd)                                                          \
    X(read_next_header, archive_read_next_header)                                                  \
    X(read_data_block, archive_read_data_block)                                                    \
    X(write_disk_new, archive_write_disk_new)                                                      \
    X(write_disk_set_options, archive_write_disk_set_options)                                      \
    X(write_new, archive_write_new)                                                                \
    X(write_set_format_pax_restricted, archive_write_set_format_pax_restricted)                    \
    X(write_set_bytes_per_block, archive_write_set_bytes_per_block)                                \
    X(write_open_fd, archive_write_open_fd)                                                        \
    X(write_header, archive_write_header)                                                          \
    X(write_data, archive_write_data)                                                              \
    X(write_data_block, archive_write_data_block)                                                  \
    X(write_finish_entry, archive_write_finish_entry)                                              \
    X(write_close, archive_write_close)                                                            \
    X(write_free, archive_write_free)

struct archive_library {
    void *handle; /* of dlopen; NULL: not loaded */
    ARCHIVE_LIBRARY_FUNCTIONS(DL_MEMBER)
};

/* `needed_by` begins the message when it is not installed ("tar shards need"). It stays loaded until the end of the process, also
 * when it is opened again. Errors: STATUS_LIBRARY: it is not installed, or lacks a function. */
enum status archive_library_open(struct archive_library *library, const char *needed_by,
                                 struct err *err);

#endif
