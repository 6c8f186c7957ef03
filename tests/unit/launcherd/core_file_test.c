/* Where a core file is, by kernel.core_pattern. */
#include "launcherd/shim/core_file.h"

#include <string.h>

#include "tests/lib/test.h"

static const char *place(const char *pattern, bool has_pid)
{
    static char out[REASON_BYTES_MAX];
    const struct core_file_facts facts = {
        .pid = 77, .uid = 1000, .signal = 11, .cwd = "/home/a", .has_pid = has_pid};

    memset(out, 'x', sizeof out);
    core_file_place(pattern, &facts, out);
    return out;
}

TEST(a_path)
{
    CHECK_STR(place("core", false), "/home/a/core");
    CHECK_STR(place("core\n", true), "/home/a/core.77");
    CHECK_STR(place("/var/cores/%e.%p.%s.%u", true), "/var/cores/*.77.11.1000");
    CHECK_STR(place("/c/%%%", false), "/c/%");
    CHECK_STR(place("/c/core-%t-%h", true), "/c/core-*-*.77");
}

TEST(a_program)
{
    CHECK_STR(place("|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h\n", true),
              "systemd-coredump has it: coredumpctl dump 77");
    CHECK_STR(place("|/usr/share/apport/apport -p%p -s%s", false),
              "given to /usr/share/apport/apport");
    CHECK_STR(place("|", false), "given to ");
}

TEST(what_is_too_long_or_not_printable)
{
    char pattern[256];

    memset(pattern, 'a', sizeof pattern - 1);
    pattern[sizeof pattern - 1] = '\0';
    CHECK_EQ(strlen(place(pattern, true)), REASON_BYTES_MAX - 1);
    CHECK_STR(place("/\x1b/\xff", false), "/?/?");
}

TEST_MAIN
