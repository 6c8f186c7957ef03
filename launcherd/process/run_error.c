#include "launcherd/process/run_error.h"

#include <errno.h>
#include <stddef.h>

struct run_error {
    int code;
    int32_t exit_code;
};

/* Sources: execve(2), chdir(2), stat(2) and path_resolution(7) of Linux. What is not listed may pass.
 * Some that are not listed, and why:
 *   EAGAIN           fork: too many processes of the user; exec: RLIMIT_NPROC was exceeded by the
 *                    change of user
 *   ENOMEM           no memory now
 *   ENFILE, EMFILE   no descriptor now
 *   EIO, EREMOTEIO   a disk or a file server failed
 *   ESTALE           the file server has another file of that handle: it was restarted or exported anew
 *   ENOTCONN         the process behind a FUSE mount has ended
 *   ETIMEDOUT, EHOSTDOWN, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ECONNREFUSED, ECONNRESET
 *                    a file server does not answer
 *   ENOKEY, EKEYEXPIRED, EKEYREVOKED   the user's ticket for a file server is not there yet, or old
 *   ETXTBSY          somebody has the program open for writing: a build or a copy is not over
 *   EBUSY, EINTR, ENOLCK, EDQUOT, ENOSPC   of this moment
 *   ENODEV, ENXIO    a device under the path is missing on this machine now
 *   EFAULT           not possible for texts of ours */
static const struct run_error final_errors[] = {
    {ENOENT, RUN_EXIT_NOT_FOUND},     /* no such file, or no such interpreter */
    {ENOTDIR, RUN_EXIT_NOT_FOUND},    /* a part of the path is a file */
    {EACCES, RUN_EXIT_NOT_RUNNABLE},  /* not executable, noexec, a folder of the path is closed */
    {EPERM, RUN_EXIT_NOT_RUNNABLE},   /* forbidden by a capability or a security module */
    {ENOEXEC, RUN_EXIT_NOT_RUNNABLE}, /* no program for this machine */
    {ELIBBAD, RUN_EXIT_NOT_RUNNABLE}, /* its interpreter is none */
    {EINVAL, RUN_EXIT_NOT_RUNNABLE},  /* a program with two interpreters */
    {EISDIR, RUN_EXIT_NOT_RUNNABLE},  /* its interpreter is a folder */
    {ELOOP, RUN_EXIT_NOT_RUNNABLE},   /* links, or interpreters, in a circle */
    {ENAMETOOLONG, RUN_EXIT_NOT_RUNNABLE}, /* the path */
    {E2BIG, RUN_EXIT_NOT_RUNNABLE},        /* arguments and environment: the same on each try */
};

int32_t run_error_exit(int code)
{
    for (size_t i = 0; i < sizeof final_errors / sizeof final_errors[0]; i++)
        if (final_errors[i].code == code)
            return final_errors[i].exit_code;
    return RUN_EXIT_MACHINE;
}

bool run_error_is_final(int code)
{
    return run_error_exit(code) != RUN_EXIT_MACHINE;
}
