/* Loads one server from one process and prints one JSON object. usage:
 *   load ADDRESS KEYS handshakes SECONDS AT_A_TIME   connect, prove the key, say hello, close, again
 *   load ADDRESS KEYS nodes|clients COUNT SECONDS    COUNT connections, each with a heartbeat a second
 *   load ADDRESS KEYS submits COUNT CLIENTS          COUNT jobs by CLIENTS at a time, each durable
 *   load ADDRESS KEYS round NODES NPROC              one job on NODES nodes: its join round; $DDP_SERVER: a client's address
 * ADDRESS is HOST:PORT or unix:PATH; KEYS a file with one key URL a line, "-" for none. The server's CPU time and memory are the
 * caller's to measure (tests/bench/cluster.py). */
#include "tests/bench/load.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void load_fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)fprintf(stderr, "load: ");
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\n");
    va_end(args);
    exit(EXIT_FAILURE);
}

static void add_key(struct load *load, const char *url)
{
    struct err err;
    uint32_t i = load->key_count++;

    load->keys = realloc(load->keys, load->key_count * sizeof *load->keys);
    load->contexts = realloc(load->contexts, load->key_count * sizeof(struct tls_context *));
    if (load->keys == NULL || load->contexts == NULL)
        load_fail("no memory");
    if (key_parse(url, &load->keys[i], &err) != STATUS_OK ||
        tls_client_new(&load->contexts[i], &load->keys[i], &err) != STATUS_OK)
        load_fail("key %u: %s", i, err.text);
}

void load_open(struct load *load, const char *address, const char *key_path)
{
    char line[1024];
    struct err err;
    FILE *file;

    *load = (struct load){0};
    if (caller_find(address, &load->place, &err) != STATUS_OK)
        load_fail("%s", err.text);
    if (strcmp(key_path, "-") == 0)
        return;
    file = fopen(key_path, "re");
    if (file == NULL)
        load_fail("%s cannot be read", key_path);
    while (fgets(line, sizeof line, file) != NULL)
        add_key(load, line);
    (void)fclose(file);
}

void load_close(struct load *load)
{
    for (uint32_t i = 0; i < load->key_count; i++)
        tls_context_free(&load->contexts[i]);
    free(load->contexts);
    free(load->keys);
}

struct tls_context *load_context(const struct load *load, uint32_t i)
{
    if (load->key_count == 0)
        return NULL;
    if (load->key_count > 1 && i >= load->key_count)
        load_fail("%u keys are not enough", load->key_count);
    return load->contexts[load->key_count == 1 ? 0 : i];
}

const char *load_name(const struct load *load, uint32_t i, char name[32])
{
    (void)snprintf(name, 32, "n%u", i);
    return load->key_count == 0 ? name : load->keys[load->key_count == 1 ? 0 : i].name;
}

uint64_t load_now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void load_mark(const char *line)
{
    printf("%s\n", line);
    (void)fflush(stdout);
    for (int c = isatty(STDIN_FILENO) ? EOF : getchar(); c != EOF && c != '\n';)
        c = getchar();
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

void load_print_times(const char *name, uint32_t *us, uint32_t count)
{
    const uint32_t half = count / 2, most = (uint32_t)((uint64_t)count * 99 / 100);

    qsort(us, count, sizeof *us, compare);
    if (count > 0)
        printf(",\"%s_p50_ms\":%.2f,\"%s_p99_ms\":%.2f,\"%s_max_ms\":%.2f", name, us[half] / 1e3,
               name, us[most] / 1e3, name, us[count - 1] / 1e3);
}

static uint32_t number(const char *text)
{
    unsigned long value = strtoul(text, NULL, 10);

    if (value == 0 || value > 10000000)
        load_fail("%s is not a number above 0", text);
    return (uint32_t)value;
}

int main(int argc, char **argv)
{
    struct rlimit files = {0};
    struct load load;
    const char *mode;

    if (argc != 6)
        load_fail("usage: load ADDRESS KEYS handshakes|nodes|clients|submits A B");
    (void)getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    load_open(&load, argv[1], argv[2]);
    mode = argv[3];
    if (strcmp(mode, "handshakes") == 0)
        load_handshakes(&load, number(argv[4]), number(argv[5]));
    else if (strcmp(mode, "nodes") == 0 || strcmp(mode, "clients") == 0)
        load_beats(&load, number(argv[4]), number(argv[5]), mode[0] == 'n');
    else if (strcmp(mode, "submits") == 0)
        load_submits(&load, number(argv[4]), number(argv[5]));
    else if (strcmp(mode, "round") == 0)
        load_round(&load, getenv("DDP_SERVER"), number(argv[4]), number(argv[5]));
    else
        load_fail("no mode %s", mode);
    load_close(&load);
    return EXIT_SUCCESS;
}
