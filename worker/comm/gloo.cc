/* Gloo's collectives behind a C interface. See gloo.h. */
#include "worker/comm/gloo.h"

#include <cstdio>
#include <exception>
#include <memory>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/context.h>
#include <gloo/math.h>
#include <gloo/types.h>

#include "worker/comm/transport.h"

namespace
{
constexpr uint8_t multicast_slot = 0x7d; /* none of Gloo's own (gloo/types.h) */

class Mesh final : public ::gloo::Context
{
  public:
    Mesh(int own_rank, int world, std::shared_ptr<::gloo::transport::Context> transport)
        : ::gloo::Context(own_rank, world)
    {
        transportContext_ = std::move(transport);
    }
};

/* Runs `body` and turns an exception into a result and a text. */
template <typename Body>
enum comm_gloo_result guarded(struct comm_gloo_failure *failure, Body body) noexcept
{
    failure->result = COMM_GLOO_OK;
    try {
        body();
    } catch (const comm::Failure &e) {
        *failure = e.get();
    } catch (const std::exception &e) {
        *failure = {COMM_GLOO_FAILED, UINT32_MAX, ""};
        (void)std::snprintf(failure->text, sizeof failure->text, "%s", e.what());
    } catch (...) {
        *failure = {COMM_GLOO_FAILED, UINT32_MAX, "an unknown exception"};
    }
    return failure->result;
}

template <typename T>
void all_reduce(const std::shared_ptr<::gloo::Context> &mesh, T *values, size_t count,
                void (*add)(void *, const void *, const void *, size_t))
{
    ::gloo::AllreduceOptions options(mesh);

    options.setOutput(values, count);
    options.setAlgorithm(::gloo::AllreduceOptions::Algorithm::RING);
    options.setReduceFunction(add);
    ::gloo::allreduce(options);
}

/* A binomial tree over the places in `ranks`: place i gets the bytes from place i - 2^k, where 2^k
 * is the highest power that is not above i, and sends them to i + 2^k for each greater power. */
void multicast(const std::shared_ptr<::gloo::Context> &mesh, void *bytes, size_t byte_count,
               const uint32_t *ranks, uint32_t rank_count)
{
    const uint64_t slot = ::gloo::Slot::build(multicast_slot, 0);
    uint32_t own = 0, step = 1, sends = 0;

    while (own < rank_count && ranks[own] != static_cast<uint32_t>(mesh->rank))
        own++;
    if (own == rank_count)
        return;
    auto buffer = mesh->createUnboundBuffer(bytes, byte_count);
    while (step <= own)
        step *= 2;
    if (own > 0) {
        buffer->recv(static_cast<int>(ranks[own - step / 2]), slot);
        (void)buffer->waitRecv();
    }
    for (; own + step < rank_count; step *= 2, sends++)
        buffer->send(static_cast<int>(ranks[own + step]), slot);
    while (sends-- > 0)
        (void)buffer->waitSend();
}
} // namespace

struct comm_gloo {
    std::shared_ptr<::gloo::Context> mesh;
};

enum comm_gloo_result comm_gloo_new(struct comm_gloo **gloo, uint32_t rank, uint32_t world,
                                    const int *fds, int stop_fd,
                                    const struct comm_gloo_patience *patience,
                                    struct comm_gloo_failure *failure)
{
    return guarded(failure, [&] {
        auto made = std::make_unique<comm_gloo>();
        const int own_rank = static_cast<int>(rank);
        const int size = static_cast<int>(world);

        made->mesh = std::make_shared<Mesh>(
            own_rank, size,
            std::make_shared<comm::Transport>(own_rank, size, fds, stop_fd, *patience));
        *gloo = made.release();
    });
}

void comm_gloo_free(struct comm_gloo **gloo)
{
    struct comm_gloo_failure failure;

    (void)guarded(&failure, [&] { delete *gloo; });
    *gloo = nullptr;
}

enum comm_gloo_result comm_gloo_all_reduce_f32(struct comm_gloo *gloo, float *values, size_t count,
                                               struct comm_gloo_failure *failure)
{
    return guarded(failure, [&] { all_reduce(gloo->mesh, values, count, &::gloo::sum<float>); });
}

enum comm_gloo_result
comm_gloo_all_reduce_u16(struct comm_gloo *gloo, uint16_t *values, size_t count,
                         void (*add)(void *, const void *, const void *, size_t),
                         struct comm_gloo_failure *failure)
{
    return guarded(failure, [&] { all_reduce(gloo->mesh, values, count, add); });
}

enum comm_gloo_result comm_gloo_all_reduce_f64(struct comm_gloo *gloo, double *values, size_t count,
                                               struct comm_gloo_failure *failure)
{
    return guarded(failure, [&] { all_reduce(gloo->mesh, values, count, &::gloo::sum<double>); });
}

enum comm_gloo_result comm_gloo_broadcast(struct comm_gloo *gloo, void *bytes, size_t byte_count,
                                          uint32_t root, struct comm_gloo_failure *failure)
{
    return guarded(failure, [&] {
        ::gloo::BroadcastOptions options(gloo->mesh);

        options.setOutput(static_cast<uint8_t *>(bytes), byte_count);
        options.setRoot(static_cast<int>(root));
        ::gloo::broadcast(options);
    });
}

enum comm_gloo_result comm_gloo_all_gather(struct comm_gloo *gloo, const void *mine,
                                           size_t byte_count, void *all,
                                           struct comm_gloo_failure *failure)
{
    return guarded(failure, [&] {
        ::gloo::AllgatherOptions options(gloo->mesh);
        auto *input = static_cast<uint8_t *>(const_cast<void *>(mine)); /* only read */

        options.setInput(input, byte_count);
        options.setOutput(static_cast<uint8_t *>(all),
                          byte_count * static_cast<size_t>(gloo->mesh->size));
        ::gloo::allgather(options);
    });
}

enum comm_gloo_result comm_gloo_multicast(struct comm_gloo *gloo, void *bytes, size_t byte_count,
                                          const uint32_t *ranks, uint32_t rank_count,
                                          struct comm_gloo_failure *failure)
{
    return guarded(failure, [&] { multicast(gloo->mesh, bytes, byte_count, ranks, rank_count); });
}

enum comm_gloo_result comm_gloo_barrier(struct comm_gloo *gloo, struct comm_gloo_failure *failure)
{
    return guarded(failure, [&] {
        ::gloo::BarrierOptions options(gloo->mesh);

        ::gloo::barrier(options);
    });
}
