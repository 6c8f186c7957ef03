/* A process as JSON: only a child of the given parent is described. */
#include "launcherd/inspect/stack.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "launcherd/inspect/dials.h"
#include "tests/lib/test.h"

static const char *text_of(const cJSON *object, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

TEST(a_child_of_its_parent)
{
    cJSON *out = cJSON_CreateObject();

    CHECK(stack_describe(getpid(), getppid(), out));
    CHECK_STR(text_of(out, "state"), "R");
    CHECK_STR(text_of(out, "wchan"), "");
    CHECK(strncmp(text_of(out, "name"), "test-inspect", 12) == 0);
    CHECK_EQ(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(out, "threads")), 1);
    CHECK_EQ(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(out, "children")), 0);
    cJSON_Delete(out);
}

TEST(a_process_of_somebody_else)
{
    cJSON *out = cJSON_CreateObject();

    CHECK(!stack_describe(getpid(), getpid(), out)); /* not our child: the pid was reused */
    CHECK(!stack_describe(INT32_MAX, getppid(), out));
    CHECK(out->child == NULL);
    cJSON_Delete(out);
}

TEST(a_program_that_is_no_python)
{
    CHECK_EQ(stack_find_python(getpid()), 0);
}

/* A socket that is bound to the loopback, and listens; its address in `address`. */
static int listen_here(struct sockaddr_in *address)
{
    socklen_t bytes = sizeof *address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    *address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)address, bytes) == 0 && listen(fd, 1) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)address, &bytes) == 0);
    return fd;
}

TEST(a_store_that_nobody_serves)
{
    char folder[] = "/tmp/ddp-inspect-XXXXXX", path[64];
    struct sockaddr_in address;
    struct dial dial = {.pid = 0};
    int listener = listen_here(&address), refused = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int connected = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), file;
    const void *library;
    pid_t child;

    CHECK(connect(connected, (struct sockaddr *)&address, sizeof address) == 0);
    close(connected);
    close(listener); /* from here on nobody listens there */
    CHECK(connect(refused, (struct sockaddr *)&address, sizeof address) != 0);
    CHECK(!dials_find(getpid(), &dial)); /* a program without PyTorch may wait for anything */

    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(path, sizeof path, "%s/libtorch_cpu.so", folder);
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(file >= 0 && ftruncate(file, 4096) == 0);
    library = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    CHECK(library != MAP_FAILED);
    CHECK(dials_find(getpid(), &dial));
    CHECK_EQ(dial.pid, getpid());
    CHECK_STR(dial.to, "");

    listener = listen_here(&address);
    connected = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(dials_find(getpid(), &dial)); /* it listens itself, and is connected to nobody */
    CHECK(connect(connected, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(!dials_find(getpid(), &dial)); /* it has lost a peer, and has others */
    close(connected);
    close(listener);
    child = fork();
    if (child == 0) {
        (void)pause();
        _exit(0);
    }
    close(refused);
    CHECK(dials_find(getpid(), &dial)); /* a process below the rank's */
    CHECK_EQ(dial.pid, child);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    CHECK(!dials_find(getpid(), &dial));
    CHECK(munmap((void *)(uintptr_t)library, 4096) == 0 && close(file) == 0 && unlink(path) == 0 &&
          rmdir(folder) == 0);
}

TEST_MAIN
