#include "ddpctl/program_kind.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"

#define HEAD_BYTES 256

static bool is_program_file(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

/* Calls `has` with each folder of `search` until it returns true. */
static bool any_folder(const char *search, bool (*has)(const char *folder, void *context),
                       void *context)
{
    for (const char *at = search != NULL ? search : ""; *at != '\0'; at += *at == ':') {
        const size_t length = strcspn(at, ":");
        char folder[PATH_MAX];

        if (length < sizeof folder) {
            (void)snprintf(folder, sizeof folder, "%.*s", (int)length, at);
            if (has(length > 0 ? folder : ".", context))
                return true;
        }
        at += length;
    }
    return false;
}

static bool has_program(const char *folder, const char *program)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof path, "%s/%s", folder, program) < (int)sizeof path &&
           is_program_file(path);
}

static bool has_named(const char *folder, void *program)
{
    return has_program(folder, program);
}

bool program_is_on_path(const char *program, const char *search)
{
    return any_folder(search, has_named, (void *)(uintptr_t)program);
}

static bool has_python(const char *folder, void *found)
{
    const char **name = found;

    if (has_program(folder, "python3"))
        *name = "python3";
    else if (has_program(folder, "python"))
        *name = "python";
    return *name != NULL;
}

const char *program_python(const char *search)
{
    const char *name = NULL;

    return any_folder(search, has_python, &name) ? name : "python3";
}

/* The last part of a path of `length` bytes begins with "python". */
static bool is_named_python(const char *path, size_t length)
{
    size_t from = length;

    while (from > 0 && path[from - 1] != '/')
        from--;
    return length - from >= 6 && strncmp(path + from, "python", 6) == 0;
}

/* Whether two paths name files of one folder. */
static bool are_neighbours(const char *one, const char *other)
{
    char real[PATH_MAX], folder[PATH_MAX];
    struct stat a, b;
    char *slash;

    if (realpath(one, real) == NULL || (slash = strrchr(real, '/')) == NULL)
        return false;
    *slash = '\0';
    (void)snprintf(folder, sizeof folder, "%s", other);
    slash = strrchr(folder, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    return stat(real, &a) == 0 && stat(folder, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* `line`: what follows "#!". */
static bool line_names_python(const char *path, const char *line)
{
    char interpreter[HEAD_BYTES];
    const char *at = line + strspn(line, " \t");
    size_t length = strcspn(at, " \t\r\n");

    (void)snprintf(interpreter, sizeof interpreter, "%.*s", (int)length, at);
    if (is_named_python(at, length))
        return !(is_program_file(interpreter) && are_neighbours(path, interpreter));
    if (!text_ends_with(interpreter, "/env"))
        return false;
    at += length; /* "env python3", "env -S python3 -u" */
    while (*at == ' ' || *at == '\t') {
        at += strspn(at, " \t");
        length = strcspn(at, " \t\r\n");
        if (*at != '-')
            return is_named_python(at, length);
        at += length;
    }
    return false;
}

static const char *extension_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    const char *dot = strrchr(name, '.');

    return dot != NULL && dot != name ? dot : "";
}

static bool is_other_language(const char *extension)
{
    static const char *const others[] = {".sh", ".bash", ".zsh", ".ksh", ".csh", ".fish",
                                         ".pl", ".rb",   ".R",   ".jl",  ".lua", ".js"};

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(extension, others[i]) == 0)
            return true;
    return false;
}

static bool file_is_python(const char *path)
{
    const char *extension = extension_of(path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char head[HEAD_BYTES];
    ssize_t count = fd >= 0 ? read(fd, head, sizeof head - 1) : -1;

    if (fd >= 0)
        (void)close(fd);
    if (count <= 0)
        return false;
    head[count] = '\0';
    if (count >= 4 && memcmp(head, "PK\3\4", 4) == 0)
        return true;
    if (strcmp(extension, ".pyc") == 0 || strcmp(extension, ".pyz") == 0)
        return true;
    if (head[0] == '#' && head[1] == '!')
        return line_names_python(path, head + 2);
    return !is_other_language(extension) && memchr(head, '\0', (size_t)count) == NULL;
}

enum status program_is_python(const char *word, const char *cwd, const char *search,
                              bool *is_python, struct err *err)
{
    char path[PATH_MAX], main_file[PATH_MAX + 16];
    struct stat info;

    *is_python = text_ends_with(word, ".py");
    if (*is_python || (strchr(word, '/') == NULL && program_is_on_path(word, search)))
        return STATUS_OK;
    if (snprintf(path, sizeof path, "%s%s%s", word[0] == '/' ? "" : cwd, word[0] == '/' ? "" : "/",
                 word) >= (int)sizeof path ||
        stat(path, &info) != 0)
        return STATUS_OK;
    if (S_ISDIR(info.st_mode)) {
        (void)snprintf(main_file, sizeof main_file, "%s/__main__.py", path);
        *is_python = access(main_file, F_OK) == 0;
        return *is_python || strchr(word, '/') == NULL /* nodes may have a program of that name */
                   ? STATUS_OK
                   : err_set(err, STATUS_BAD_INPUT, 0,
                             "%.160s is a folder without __main__.py: name a script in it", word);
    }
    *is_python = S_ISREG(info.st_mode) && file_is_python(path);
    return STATUS_OK;
}
