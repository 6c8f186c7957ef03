/* stamp FILE: appends "rank generation pid nanoseconds" (CLOCK_REALTIME, at main) and waits for a
 * signal. What the restart benchmark runs as a worker, under ours and under torchrun. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *word(const char *name)
{
    const char *value = getenv(name);

    return value == NULL ? "-" : value;
}

int main(int argc, char **argv)
{
    struct timespec now;
    char line[128];
    int fd, length;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (argc != 2)
        return 2;
    fd = open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    length = snprintf(line, sizeof line, "%s %s %d %lld\n", word("RANK"),
                      word("TORCHELASTIC_RESTART_COUNT"), (int)getpid(),
                      (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    if (fd < 0 || write(fd, line, (size_t)length) != length)
        return 1;
    (void)close(fd);
    (void)pause();
    return 0;
}
