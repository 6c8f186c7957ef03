#include <dlfcn.h>

#include "tests/lib/edge/edge.h"

void *edge_real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}
