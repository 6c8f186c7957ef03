/* Which first word of a command is for Python. */
#include "ddpctl/program_kind.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/test.h"

static char folder[64] = "/tmp/ddp-kind-XXXXXX";
static char search[512];
static struct err err;

static const char *in_folder(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void make_dir(const char *name)
{
    CHECK(mkdir(in_folder(name), 0700) == 0);
}

static void make_file(const char *name, const char *text, size_t byte_count, mode_t mode)
{
    const int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

    CHECK(fd >= 0 && write(fd, text, byte_count) == (ssize_t)byte_count && close(fd) == 0);
}

static void script(const char *name, const char *first_line, mode_t mode)
{
    char text[256];
    const int count = snprintf(text, sizeof text, "%sprint()\n", first_line);

    make_file(name, text, (size_t)count, mode);
}

/* "yes", "no", or "refused". */
static const char *ask(const char *word)
{
    bool is_python = false;

    err = (struct err){0};
    if (program_is_python(word, folder, search, &is_python, &err) != STATUS_OK)
        return "refused";
    return is_python ? "yes" : "no";
}

TEST(a_folder_with_a_path)
{
    CHECK(mkdtemp(folder) != NULL);
    make_dir("bin");
    make_dir("only");
    make_dir("none");
    script("bin/python3", "#!/bin/sh\n", 0755);
    script("bin/python", "#!/bin/sh\n", 0755);
    script("only/python", "#!/bin/sh\n", 0755);
    script("bin/tool", "#!/bin/sh\n", 0755);
    (void)snprintf(search, sizeof search, "%s/none:%s/bin", folder, folder);
}

TEST(what_ends_in_py_is_pythons)
{
    script("train.py", "#!/usr/bin/env python3\n", 0755);
    script("lf.py", "#!/usr/bin/env python3\r\n", 0755);
    script("gone.py", "#!/opt/gone/python\n", 0755);
    script("shell.py", "#!/bin/sh\n", 0755);
    script("plain.py", "", 0644);
    CHECK_STR(ask("train.py"), "yes");
    CHECK_STR(ask("./train.py"), "yes");
    CHECK_STR(ask("lf.py"), "yes");
    CHECK_STR(ask("gone.py"), "yes");
    CHECK_STR(ask("shell.py"), "yes");
    CHECK_STR(ask("plain.py"), "yes");
    CHECK_STR(ask("/only/on/the/nodes.py"), "yes");
}

TEST(scripts_without_extension)
{
    char beside[160];

    script("main", "", 0644);
    script("main-x", "", 0755);
    script("env", "#!/usr/bin/env python3\n", 0755);
    script("split", "#!/usr/bin/env -S python3 -u\n", 0755);
    script("fixed", "#!/usr/bin/python3.11\n", 0755);
    script("windows", "#!/usr/bin/env python3\r\n", 0755);
    script("left", "#!/opt/gone/python\n", 0644);
    script("run.v2", "", 0644);
    CHECK_STR(ask("main"), "yes");
    CHECK_STR(ask("main-x"), "yes");
    CHECK_STR(ask("env"), "yes");
    CHECK_STR(ask("split"), "yes");
    CHECK_STR(ask("fixed"), "yes");
    CHECK_STR(ask("windows"), "yes");
    CHECK_STR(ask(in_folder("left")), "yes");
    CHECK_STR(ask("run.v2"), "yes");
    /* What pip has made for the Python beside it. */
    (void)snprintf(beside, sizeof beside, "#!%s/bin/python3\n", folder);
    script("bin/console", beside, 0755);
    CHECK_STR(ask("bin/console"), "no");
    script("elsewhere", beside, 0755);
    CHECK_STR(ask("./elsewhere"), "yes");
}

TEST(programs)
{
    make_file("elf", "\177ELF\2\1\1\0\0\0", 10, 0755);
    make_dir("tool"); /* the one of the PATH is meant, and ./tool the folder */
    script("run.sh", "#!/bin/sh\n", 0755);
    script("start", "#!/bin/bash\n", 0755);
    script("bare.sh", "", 0755);
    make_file("empty", "", 0, 0755);
    CHECK_STR(ask("elf"), "no");
    CHECK_STR(ask("tool"), "no");
    CHECK_STR(ask("./tool"), "refused");
    CHECK(strstr(err.text, "./tool is a folder without __main__.py") != NULL);
    CHECK_STR(ask("none"), "no");
    CHECK_STR(ask("run.sh"), "no");
    CHECK_STR(ask("start"), "no");
    CHECK_STR(ask("bare.sh"), "no");
    CHECK_STR(ask("empty"), "no");
    CHECK_STR(ask("not-there"), "no");
    CHECK_STR(ask("/not/there"), "no");
}

TEST(folders_and_archives)
{
    make_dir("package");
    script("package/__main__.py", "", 0644);
    make_file("app.zip", "PK\3\4rest", 8, 0644);
    make_file("app", "PK\3\4rest", 8, 0755);
    script("app.pyz", "#!/bin/sh\n", 0755);
    CHECK_STR(ask("package"), "yes");
    CHECK_STR(ask("./package/"), "yes");
    CHECK_STR(ask("app.zip"), "yes");
    CHECK_STR(ask("app"), "yes");
    CHECK_STR(ask("app.pyz"), "yes");
}

TEST(which_python)
{
    char other[160];

    CHECK_STR(program_python(search), "python3");
    (void)snprintf(other, sizeof other, "%s/only:%s/bin", folder, folder);
    CHECK_STR(program_python(other), "python"); /* of an environment that has this name alone */
    CHECK_STR(program_python(""), "python3");
    CHECK_STR(program_python(NULL), "python3");
    CHECK(program_is_on_path("tool", search) && !program_is_on_path("train.py", search));
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *level)
{
    (void)info, (void)type, (void)level;
    return remove(path);
}

TEST(the_folder_is_removed)
{
    CHECK_EQ(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

TEST_MAIN
