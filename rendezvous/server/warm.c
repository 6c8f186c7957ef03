/* Decides which programs a spare node is asked to keep warm. */
#include <string.h>

#include "common/launch.h"
#include "common/stage.h"
#include "rendezvous/server/internal.h"

/* It waits if DDP_WARM_FD is set. Another program of that name finds no number in RANK and ends. */
#define WARM_PROGRAM "ddp-worker"

bool server_can_warm(const struct server *server)
{
    const char *program = server->spec.argv.count > 0 ? server->spec.argv.items[0] : "";
    const char *slash = strrchr(program, '/');
    char hash[STAGE_HASH_CHARS + 1];

    return strcmp(slash == NULL ? program : slash + 1, WARM_PROGRAM) == 0 &&
           !stage_of_cwd(server->spec.cwd, hash) &&
           launch_value(&server->spec.launch, LAUNCH_TTY) == NULL;
}
