#include "worker/net/elastic_lr.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *const names[] = {"keep", "linear", "sqrt"};

int elastic_lr_named(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return (int)i;
    return -1;
}

const char *elastic_lr_name(enum elastic_lr rule)
{
    return names[rule];
}

double elastic_lr_factor(enum elastic_lr rule, uint64_t first_images, uint64_t images)
{
    const double ratio = first_images == 0 ? 1.0 : (double)images / (double)first_images;

    assert(images > 0);
    if (rule == ELASTIC_LR_KEEP)
        return 1.0;
    return rule == ELASTIC_LR_LINEAR ? ratio : sqrt(ratio);
}
