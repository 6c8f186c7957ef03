#include "ddpctl/caller.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/stage.h"
#include "common/utf8.h"

#define MASK_USUAL 022u

static bool is_here(const char *path)
{
    struct stat here, there;

    return path[0] == '/' && stat(".", &here) == 0 && stat(path, &there) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

static enum status find_here(char path[CALLER_PATH_BYTES], struct err *err)
{
    const char *typed = getenv("PWD");

    if (typed && strlen(typed) < CALLER_PATH_BYTES && is_here(typed)) {
        (void)snprintf(path, CALLER_PATH_BYTES, "%s", typed);
        return STATUS_OK;
    }
    if (getcwd(path, CALLER_PATH_BYTES))
        return STATUS_OK;
    if (errno == ENOENT)
        return err_set(err, STATUS_NOT_FOUND, errno,
                       "the current directory was removed: go to one that is there (cd), or name "
                       "one with --cwd /DIR");
    return err_set(err, STATUS_SYSTEM, errno,
                   "the current directory cannot be read: %s; name one with --cwd /DIR",
                   strerror(errno));
}

enum status caller_choose_directory(const char *wanted, bool is_local, char path[CALLER_PATH_BYTES],
                                    struct err *err)
{
    char here[CALLER_PATH_BYTES] = "", hash[STAGE_HASH_CHARS + 1];
    const bool is_whole = wanted && (wanted[0] == '/' || stage_of_cwd(wanted, hash));
    struct stat info;

    if (!is_whole && find_here(here, err) != STATUS_OK)
        return err->status;
    if (snprintf(path, CALLER_PATH_BYTES, "%s%s%s", here, wanted && !is_whole ? "/" : "",
                 wanted ? wanted : "") >= CALLER_PATH_BYTES)
        return err_set(err, STATUS_TOO_BIG, 0, "the path of the working directory is too long");
    if (!utf8_is_valid(path, strlen(path)))
        return err_set(
            err, STATUS_BAD_INPUT, 0,
            "the working directory %.120s has a name that is not valid UTF-8: make a link "
            "to it (ln -s), and go there",
            path);
    if (is_local && (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)))
        return err_set(err, STATUS_NOT_FOUND, errno, "--cwd: there is no folder %.200s", path);
    return STATUS_OK;
}

void caller_mask(char text[CALLER_MASK_BYTES])
{
    const mode_t mask = umask(MASK_USUAL);

    (void)umask(mask);
    text[0] = '\0';
    if (mask != MASK_USUAL)
        (void)snprintf(text, CALLER_MASK_BYTES, "%03o", (unsigned)mask & 0777u);
}

void caller_limits(char text[JOB_LIMITS_TEXT_BYTES])
{
    struct job_limits limits = {.is_set = {false}};
    struct rlimit limit;

    for (int i = 0; i < JOB_LIMIT_COUNT; i++) {
        if (getrlimit(job_limit_resource((enum job_limit)i), &limit) != 0)
            continue;
        limits.soft[i] = limit.rlim_cur == RLIM_INFINITY ? JOB_LIMIT_NONE : limit.rlim_cur;
        limits.is_set[i] = job_limit_is_chosen((enum job_limit)i, limits.soft[i]);
    }
    job_limits_format(&limits, text);
}
