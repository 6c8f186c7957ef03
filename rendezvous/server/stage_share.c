#include "rendezvous/server/stage_share.h"

#include <stdio.h>
#include <string.h>

void stage_set_user(struct stage_files *files, struct peer *peer)
{
    const struct server *server = peer->server;
    const struct stage_upload *upload;

    (void)snprintf(files->user, sizeof files->user, "%s", peer_user(peer));
    files->begun_bytes = files->begun_others_bytes = files->bytes_to_come = 0;
    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        struct peer *other = server->peers[i];

        if (other == NULL || other == peer || other->upload == NULL)
            continue;
        upload = other->upload;
        files->bytes_to_come += upload->total - upload->have;
        if (strcmp(peer_user(other), files->user) == 0)
            files->begun_bytes += upload->total;
        else
            files->begun_others_bytes += upload->total;
    }
}

bool stage_may_use(struct peer *peer, const char *hash)
{
    if (stage_uses_takes(&peer->server->stage_uses, peer_user(peer), hash, clock_boot_us()))
        return true;
    peer_error(peer, "full", "try again in ten minutes",
               "%s has sent too many staged directories within ten minutes", peer_user(peer));
    return false;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

void stage_tell_full(struct peer *peer, const struct stage_files *files)
{
    if (files->is_share)
        peer_error(peer, "full",
                   "wait for jobs of yours to end, or cancel some: an archive counts as yours "
                   "while they name it, and for "
                   "ten minutes after you have sent or named it",
                   "no user may have more than half of what others leave of the room for staged "
                   "directories: you have %.1f MiB of %.1f, and this one has %.1f",
                   mib(files->has_bytes), mib(files->most_bytes), mib(files->wants_bytes));
    else
        peer_error(peer, "full", "wait for jobs to end: their archives go ten minutes after that",
                   "the server has all the staged directories that it keeps: %llu GiB, or half of "
                   "its disk",
                   STAGE_TOTAL_BYTES_MAX >> 30);
}
