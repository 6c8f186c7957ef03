/* A program that dies: native HOW. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_batch(int size, int ranks)
{
    assert(size % ranks == 0 && "batch must be divisible by ranks");
    return size / ranks;
}

static void copy_name(const char *name)
{
    char short_name[8];
    strcpy(short_name, name);
    puts(short_name);
}

static int sum_to(const int *values, int n)
{
    int sum = 0;
    for (int i = 0; i <= n; i++)
        sum += values[i];
    return sum;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    printf("solver: %s\n", how);
    fflush(stdout);
    if (strcmp(how, "assert") == 0)
        return check_batch(30, 4);
    if (strcmp(how, "free") == 0) {
        void *memory = malloc(100);
        free(memory);
        free(memory);
    }
    if (strcmp(how, "stack") == 0)
        copy_name("a name that is far too long for it");
    if (strcmp(how, "segv") == 0)
        return *(volatile int *)(size_t)(argc + 6);
    if (strcmp(how, "overflow") == 0) {
        int *values = calloc((size_t)argc + 8, sizeof *values);
        return sum_to(values, argc + 8);
    }
    if (strcmp(how, "undefined") == 0) {
        int large = 2147483647 - 2 + argc;
        printf("%d\n", large + argc);
    }
    if (strcmp(how, "fpe") == 0)
        return 7 / (argc - 2);
    return 0;
}
