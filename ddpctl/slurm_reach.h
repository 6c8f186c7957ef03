/* Finds out by which of its addresses a server can be reached from here. Tries them one after
 * another, repeatedly, until one connects or the time is over. An edge on the caller's loop. */
#ifndef DDPCTL_SLURM_REACH_H
#define DDPCTL_SLURM_REACH_H

#include <ifaddrs.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/io/dial.h"
#include "common/key.h"
#include "common/status.h"
#include "ddpctl/slurm_talk.h"

#define SLURM_LISTEN_BYTES 16u

/* Zero it first. */
struct slurm_reach {
    uv_loop_t *loop;
    struct dial dial;
    uv_timer_t timer;
    bool is_dialing, has_timer, is_over;
    uint64_t until_us;
    char list[SLURM_LINE_BYTES_MAX]; /* A,B,C */
    uint32_t index;
    char address[KEY_HOST_BYTES_MAX +
                 8]; /* the one that is being tried; in the end, the one that connected */
    /* STATUS_OK: `address` can be reached; otherwise `text` says why the last one cannot. Not
     * called after slurm_reach_close. */
    void (*done)(struct slurm_reach *reach, enum status status, const char *text);
    void *owner;
};

/* `done` and `owner` must be set. */
void slurm_reach_start(struct slurm_reach *reach, uv_loop_t *loop, const char *list);
/* The handles are free when the loop has ended. A second call does nothing. */
void slurm_reach_close(struct slurm_reach *reach);

/* Where a server listens so that others reach it: "0.0.0.0", or "[::]" on a machine that has addresses of IPv6 alone. */
const char *slurm_reach_any(const struct ifaddrs *all);
/* The addresses by which other machines may reach `port` here, as such a list: `first` (NULL: none), then those of the
 * interfaces, last loopback, for nodes on one machine. */
void slurm_reach_list(const struct ifaddrs *all, const char *first, uint16_t port,
                      char list[SLURM_LINE_BYTES_MAX]);
/* The same for this machine; first comes the address on the route to `peer` (NULL: none). `listen`: for --listen. */
void slurm_reach_own(const char *peer, uint16_t port, char list[SLURM_LINE_BYTES_MAX],
                     char listen[SLURM_LISTEN_BYTES]);

#endif
