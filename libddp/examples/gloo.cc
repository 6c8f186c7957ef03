/* Gloo's all-reduce; ranks find one another through libddp's store. */
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include "reduce.h"

namespace
{
constexpr double limit_s = 120;

/* Gloo's own store, which is a few calls of libddp's. */
class Store final : public gloo::rendezvous::Store
{
  public:
    explicit Store(struct ddp *ddp) : ddp_(ddp)
    {
    }

    void set(const std::string &key, const std::vector<char> &data) override
    {
        struct ddp_error error;
        if (ddp_store_set(ddp_, key.c_str(), data.data(), data.size(), limit_s, &error) != DDP_OK)
            throw std::runtime_error(error.text);
    }

    std::vector<char> get(const std::string &key) override
    {
        struct ddp_error error;
        std::vector<char> data(65536);
        size_t bytes = data.size();
        if (ddp_store_get(ddp_, key.c_str(), data.data(), &bytes, limit_s, &error) != DDP_OK)
            throw std::runtime_error(error.text);
        data.resize(bytes);
        return data;
    }

    void wait(const std::vector<std::string> &keys) override
    {
        for (const auto &key : keys)
            (void)get(key);
    }

    void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &) override
    {
        wait(keys);
    }

  private:
    struct ddp *ddp_;
};
} // namespace

struct reduce {
    struct ddp_place place;
    std::shared_ptr<gloo::rendezvous::Context> ranks;
};

struct reduce *reduce_new(const struct ddp_place *place, char *, size_t *, char *, size_t)
{
    return new reduce{*place, nullptr};
}

int reduce_connect(struct reduce *reduce, struct ddp *ddp, const char *, size_t, char *text,
                   size_t text_bytes)
{
    if (reduce->place.world == 1)
        return 1;
    try {
        gloo::transport::tcp::attr attr(reduce->place.address);
        auto device = gloo::transport::tcp::CreateDevice(attr);
        Store store(ddp);
        reduce->ranks = std::make_shared<gloo::rendezvous::Context>(
            static_cast<int>(reduce->place.rank), static_cast<int>(reduce->place.world));
        reduce->ranks->connectFullMesh(store, device);
        return 1;
    } catch (const std::exception &e) {
        (void)std::snprintf(text, text_bytes, "Gloo: %s", e.what());
        return 0;
    }
}

int reduce_sum(struct reduce *reduce, float *values, size_t count, char *text, size_t text_bytes)
{
    if (reduce->place.world == 1)
        return 1;
    try {
        gloo::AllreduceOptions options(reduce->ranks);
        options.setOutput(values, count);
        options.setReduceFunction([](void *to, const void *a, const void *b, size_t n) {
            gloo::sum<float>(to, a, b, n);
        });
        gloo::allreduce(options);
        return 1;
    } catch (const std::exception &e) {
        (void)std::snprintf(text, text_bytes, "Gloo: %s", e.what());
        return 0;
    }
}

const char *reduce_name(const struct reduce *reduce)
{
    return reduce->place.world > 1 ? "Gloo" : "alone";
}

void reduce_free(struct reduce *reduce)
{
    delete reduce;
}
