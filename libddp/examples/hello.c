#include <ddp.h>
#include <stdio.h>

int main(void)
{
    struct ddp *ddp;
    struct ddp_error error;
    const struct ddp_place *place;

    if (ddp_open(&ddp, &error) != DDP_OK) {
        (void)fprintf(stderr, "hello: %s\n", error.text);
        return 1;
    }
    place = ddp_get_place(ddp);
    (void)printf("rank %u of %u, generation %u\n", place->rank, place->world, place->generation);
    ddp_leave(&ddp);
    return 0;
}
