/* Every message from every role. The allowed messages are listed here again, as in
 * docs/protocol.md; all others must be refused. */
#include "rendezvous/server/access.h"

#include <string.h>

#include "tests/lib/test.h"

struct allowed {
    uint32_t role;
    const char *messages; /* each between spaces */
};

#define OF_A_PERSON                                                                                \
    " client_hello submit stage_put job_get why_get job_list cancel event_list log_read "          \
    "input node_list node_read server_get "
static const struct allowed all[] = {
    {ACCESS_NODE, " node_hello beat node_event shim_report progress log_data node_data looked"
                  " input_state stage_get "},
    {ACCESS_USER, OF_A_PERSON},
    {ACCESS_ADMIN, OF_A_PERSON "node_drain node_resume principal_add principal_rotate"
                               " principal_remove principal_list keys_checked "},
};

static bool has_word(const char *words, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = words; (at = strstr(at, word)) != NULL; at += length)
        if (at[-1] == ' ' && at[length] == ' ')
            return true;
    return false;
}

TEST(every_message_by_every_role)
{
    uint32_t checked = 0;

    for (uint32_t type = 0; type < MSG_TYPE_COUNT; type++) {
        const char *name = msg_type_name((enum msg_type)type);
        uint32_t roles = 0;

        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            bool is_allowed = has_word(all[i].messages, name);

            if (access_allows(all[i].role, (enum msg_type)type) != is_allowed)
                FAIL("%s by role %u: expected %s", name, all[i].role,
                     is_allowed ? "allowed" : "refused");
            roles |= is_allowed ? all[i].role : 0;
            checked++;
        }
        CHECK_EQ(access_roles((enum msg_type)type), roles);
        CHECK(!access_allows(0, (enum msg_type)type));
        CHECK_EQ(access_allows(ACCESS_NODE | ACCESS_ADMIN, (enum msg_type)type),
                 (roles & (ACCESS_NODE | ACCESS_ADMIN)) != 0);
    }
    CHECK_EQ(checked, MSG_TYPE_COUNT * sizeof all / sizeof all[0]);
}

TEST(what_is_no_message_is_refused)
{
    CHECK_EQ(access_roles(MSG_TYPE_COUNT), 0);
    CHECK(!access_allows(UINT32_MAX, (enum msg_type)(MSG_TYPE_COUNT + 1)));
}

TEST_MAIN
