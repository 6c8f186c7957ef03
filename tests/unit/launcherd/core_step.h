/* One launcher, its clock and the actions of its last step, for tests that step it. */
#ifndef TESTS_UNIT_LAUNCHERD_CORE_STEP_H
#define TESTS_UNIT_LAUNCHERD_CORE_STEP_H

#include <stdint.h>

#include "launcherd/core/launcher.h"

#define SECOND_US 1000000ull

static struct launcher launcher;
static struct launcher_actions actions;
static uint64_t now_us;

/* The launcher takes the event at now_us. */
static void step(struct launcher_event event)
{
    event.now_us = now_us;
    launcher_step(&launcher, &event, &actions);
}

#endif
