#include "rendezvous/server/access.h"

#include <assert.h>

#define NOBODY 0u

/* X(message, roles): every message, so that a new one does not compile without a row. */
#define ACCESS_TABLE(X)                                                                            \
    X(NODE_HELLO, ACCESS_NODE) /* only with the node's own name (hello.c) */                       \
    X(BEAT, ACCESS_NODE)                                                                           \
    X(NODE_EVENT, ACCESS_NODE)                                                                     \
    X(SHIM_REPORT, ACCESS_NODE)                                                                    \
    X(PROGRESS, ACCESS_NODE)                                                                       \
    X(STAGE_GET, ACCESS_NODE)                                                                      \
    X(LOG_DATA, ACCESS_NODE)                                                                       \
    X(NODE_DATA, ACCESS_NODE)                                                                      \
    X(LOOKED, ACCESS_NODE)                                                                         \
    X(INPUT_STATE, ACCESS_NODE)                                                                    \
    X(CLIENT_HELLO, ACCESS_PERSON)                                                                 \
    X(STAGE_PUT, ACCESS_PERSON)                                                                    \
    X(SUBMIT, ACCESS_PERSON)                                                                       \
    X(JOB_GET, ACCESS_PERSON) /* users: only their own jobs, also below */                         \
    X(WHY_GET, ACCESS_PERSON)                                                                      \
    X(JOB_LIST, ACCESS_PERSON)                                                                     \
    X(CANCEL, ACCESS_PERSON)                                                                       \
    X(EVENT_LIST, ACCESS_PERSON)                                                                   \
    X(LOG_READ, ACCESS_PERSON)                                                                     \
    X(INPUT, ACCESS_PERSON) /* only the job's owner */                                             \
    X(NODE_LIST, ACCESS_PERSON)                                                                    \
    X(NODE_READ, ACCESS_PERSON) /* about a job: their own */                                       \
    X(SERVER_GET, ACCESS_PERSON)                                                                   \
    X(NODE_DRAIN, ACCESS_ADMIN)                                                                    \
    X(NODE_RESUME, ACCESS_ADMIN)                                                                   \
    X(PRINCIPAL_ADD, ACCESS_ADMIN)                                                                 \
    X(PRINCIPAL_ROTATE, ACCESS_ADMIN)                                                              \
    X(PRINCIPAL_REMOVE, ACCESS_ADMIN)                                                              \
    X(KEYS_CHECKED, ACCESS_ADMIN)                                                                  \
    X(PRINCIPAL_LIST, ACCESS_ADMIN)                                                                \
    X(NODE_WELCOME, NOBODY) /* from here on: messages that only the server sends */                \
    X(BEAT_ACK, NOBODY)                                                                            \
    X(SLOT_RESUME, NOBODY)                                                                         \
    X(NODE_ASK, NOBODY)                                                                            \
    X(LOOK, NOBODY)                                                                                \
    X(START, NOBODY)                                                                               \
    X(WARM, NOBODY)                                                                                \
    X(COOL, NOBODY)                                                                                \
    X(GO, NOBODY)                                                                                  \
    X(WORLD, NOBODY)                                                                               \
    X(STOP, NOBODY)                                                                                \
    X(FORGET, NOBODY)                                                                              \
    X(REPORT_ACK, NOBODY)                                                                          \
    X(SHIM_HELLO, NOBODY)                                                                          \
    X(LEASE, NOBODY)                                                                               \
    X(REPORT_REQUEST, NOBODY)                                                                      \
    X(WORKER_JOIN, NOBODY)                                                                         \
    X(WORKER_ERROR, NOBODY)                                                                        \
    X(WORKER_STOP, NOBODY)                                                                         \
    X(CLIENT_WELCOME, NOBODY)                                                                      \
    X(STAGE_STATE, NOBODY)                                                                         \
    X(STAGE_DATA, NOBODY)                                                                          \
    X(SUBMITTED, NOBODY)                                                                           \
    X(JOB_INFO, NOBODY)                                                                            \
    X(WHY_INFO, NOBODY)                                                                            \
    X(JOBS, NOBODY)                                                                                \
    X(NODES, NOBODY)                                                                               \
    X(SERVER_INFO, NOBODY)                                                                         \
    X(EVENTS, NOBODY)                                                                              \
    X(PRINCIPALS, NOBODY)                                                                          \
    X(REFER, NOBODY)                                                                               \
    X(PRINCIPAL_KEY, NOBODY)                                                                       \
    X(ERROR, NOBODY)

#define ROLES_OF(NAME, roles) [MSG_TYPE_##NAME] = (roles),
#define COUNT_ONE(NAME, roles) +1
static const uint32_t roles_of[] = {ACCESS_TABLE(ROLES_OF)};
static_assert(ACCESS_TABLE(COUNT_ONE) == MSG_TYPE_COUNT, "one row for each message of MSG_TABLE");

uint32_t access_roles(enum msg_type type)
{
    return (uint32_t)type < MSG_TYPE_COUNT ? roles_of[type] : NOBODY;
}

bool access_allows(uint32_t roles, enum msg_type type)
{
    return (access_roles(type) & roles) != 0;
}
