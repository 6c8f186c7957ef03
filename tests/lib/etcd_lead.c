#include "tests/lib/etcd_lead.h"

#include <stdio.h>

#include "common/io/conn.h"
#include "tests/lib/test.h"

#define PATIENCE_US 120000000u

void etcd_lead_options(uint16_t port, struct etcd_options *options)
{
    char url[64], prefix[ETCD_PREFIX_BYTES_MAX];
    struct err err;

    (void)snprintf(url, sizeof url, "etcd://127.0.0.1:%u", port);
    CHECK_EQ(etcd_url_parse(url, options, prefix, &err), STATUS_OK);
}

struct etcd_client *etcd_lead_connect(uint16_t port)
{
    struct etcd_options options;
    struct etcd_client *client;
    struct err err;

    etcd_lead_options(port, &options);
    CHECK_EQ(etcd_open(&client, &options, &err), STATUS_OK);
    return client;
}

int64_t etcd_lead_take(struct etcd_client *client, const char *prefix)
{
    char key[128];
    struct etcd_op op = {.kind = ETCD_DELETE};
    struct etcd_txn txn = {.then = &op, .then_count = 1};
    struct etcd_answer answer;
    struct arena arena = {0};
    struct err err;

    (void)snprintf(key, sizeof key, "%sleader", prefix);
    op.key = etcd_text(key);
    CHECK_EQ(etcd_transact(client, &txn, clock_boot_us() + PATIENCE_US, &arena, &answer, &err),
             STATUS_OK);
    op.kind = ETCD_PUT;
    op.value = etcd_text("test");
    CHECK_EQ(etcd_transact(client, &txn, clock_boot_us() + PATIENCE_US, &arena, &answer, &err),
             STATUS_OK);
    arena_reset(&arena);
    return answer.revision;
}
