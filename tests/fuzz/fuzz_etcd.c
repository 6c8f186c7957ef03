/* Answers of etcd's JSON gateway, as they come from the network: taken with every row in bounds, or refused
 * with a reason. */
#include <string.h>

#include "rendezvous/store/etcd_json.h"
#include "tests/fuzz/target.h"

void fuzz_corpus(fuzz_add *add)
{
    static const char *const examples[] = {
        "{\"header\":{\"cluster_id\":\"1\",\"revision\":\"12\",\"raft_term\":\"2\"},\"succeeded\":"
        "true,"
        "\"responses\":[{\"response_put\":{\"header\":{\"revision\":\"12\"}}},{\"response_range\":{"
        "\"kvs\":[{\"key\":\"L2E=\",\"create_revision\":\"3\",\"mod_revision\":\"4\",\"version\":"
        "\"2\","
        "\"value\":\"MQ==\",\"lease\":\"77\"}],\"more\":true,\"count\":\"3\"}}]}",
        "{\"header\":{\"revision\":\"5\"},\"kvs\":[{\"key\":\"L2E=\",\"value\":\"AAEC/"
        "w==\"},{\"key\":"
        "\"L2I=\"}],\"count\":\"2\"}",
        "{\"result\":{\"header\":{\"revision\":\"5\"},\"ID\":\"7587848390666004256\",\"TTL\":\"5\"}"
        "}",
        "{\"header\":{},\"version\":\"3.4.23\",\"dbSize\":\"20480\",\"leader\":\"1\","
        "\"dbSizeInUse\":"
        "\"16384\"}",
        "{\"header\":{},\"alarms\":[{\"memberID\":\"1\",\"alarm\":\"NOSPACE\"}]}",
        "{\"header\":{},\"token\":\"abc.12\"}",
        "{\"result\":{\"header\":{\"revision\":\"5\"},\"watch_id\":\"0\",\"created\":true}}",
        "{\"result\":{\"header\":{\"revision\":\"9\"},\"events\":[{\"kv\":{\"key\":\"L2E=\",\"mod_"
        "revision\":\"8\",\"value\":\"MQ==\"}},"
        "{\"type\":\"DELETE\",\"kv\":{\"key\":\"L2I=\",\"mod_revision\":\"9\"}}]}}",
        "{\"result\":{\"header\":{},\"canceled\":true,\"compact_revision\":\"12\",\"cancel_"
        "reason\":\"gone\"}}",
        "{\"error\":\"etcdserver: mvcc: database space exceeded\",\"message\":\"etcdserver: mvcc: "
        "database space exceeded\",\"code\":8}",
        "{\"error\":{\"grpc_code\":5,\"http_code\":404,\"message\":\"etcdserver: requested lease "
        "not "
        "found\",\"http_status\":\"Not Found\"}}",
    };

    for (size_t i = 0; i < 600; i++) {
        const char *text = examples[i % (sizeof examples / sizeof examples[0])];

        add(text, strlen(text));
    }
}

static void check_reply(const struct etcd_reply *reply)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < reply->answer.row_count; i++) {
        const struct etcd_row *row = &reply->answer.rows[i];

        for (size_t k = 0; k <= row->key.byte_count; k++)
            sum += (unsigned char)row->key.bytes[k];
        for (size_t k = 0; k < row->value.byte_count; k++)
            sum += (unsigned char)row->value.bytes[k];
    }
    FUZZ_CHECK(sum != UINT64_MAX && reply->token != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    struct arena arena = {.byte_limit = 1 << 22};
    struct err err = {.text = ""};
    struct etcd_reply reply;
    char words[64];
    enum status status = etcd_json_reply((const char *)data, byte_count, &arena, &reply, &err);

    if (status == STATUS_OK)
        check_reply(&reply);
    else
        FUZZ_CHECK(err.text[0] != '\0');
    FUZZ_CHECK(etcd_json_error((const char *)data, byte_count, words, sizeof words) >= -1);
    FUZZ_CHECK(strlen(words) < sizeof words);
    arena_reset(&arena);
    return 0;
}
