/* A transport for Gloo on sockets that are connected already. C++, for gloo.cc only.
 *
 * Refused: Gloo's own TCP transport. It takes the first connection on each of its ports for the
 * peer, a wait in it cannot be interrupted, its errors do not name the rank that it waited for, and
 * its thread wakes up 100 times a second. Here connections are made and authenticated before
 * (mesh.h), and the waiting thread does the I/O: no second thread, no lock.
 *
 * A message is a header (slot, byte count) and its bytes. It stays in the socket until the receiver
 * has posted a buffer for its slot, so there is one copy and no queue. This cannot deadlock as long
 * as each rank posts its receives from a peer in the order in which the peer sends. Gloo's
 * all-reduce, broadcast, all-gather and barrier do. */
#ifndef WORKER_COMM_TRANSPORT_H
#define WORKER_COMM_TRANSPORT_H

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <vector>

#include <poll.h>

#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include "worker/comm/gloo.h"

namespace comm
{
class Buffer;

/* The exception that ends a collective. */
class Failure : public std::exception
{
  public:
    Failure(enum comm_gloo_result result, uint32_t rank, const char *format, ...)
        __attribute__((format(printf, 4, 5)));
    const char *what() const noexcept override
    {
        return failure_.text;
    }
    const struct comm_gloo_failure &get() const noexcept
    {
        return failure_;
    }

  private:
    struct comm_gloo_failure failure_;
};

class Transport final : public ::gloo::transport::Context
{
  public:
    Transport(int own_rank, int world, const int *fds, int stop_fd,
              const struct comm_gloo_patience &patience);

    std::unique_ptr<::gloo::transport::Pair> &createPair(int peer) override;
    std::unique_ptr<::gloo::transport::UnboundBuffer>
    createUnboundBuffer(void *bytes, size_t byte_count) override;

    void post_send(Buffer *buffer, int peer, uint64_t slot, size_t offset, size_t byte_count);
    void post_receive(Buffer *buffer, int peer, uint64_t slot, size_t offset, size_t byte_count);
    /* Sends and receives until is_done(); throws Failure. */
    template <typename Done> void run_until(Done is_done);
    /* Drops all transfers of a buffer that is being destroyed. */
    void forget(const Buffer *buffer);

  private:
    struct Header {
        uint64_t slot;
        uint64_t byte_count;
    };
    struct Transfer {
        Buffer *buffer;
        Header header;
        uint8_t *bytes;
        size_t header_done; /* bytes of the header that have moved */
        size_t done;        /* bytes of the body that have moved */
    };
    struct Peer {
        int fd = -1;
        std::deque<Transfer> sends;    /* in order */
        std::deque<Transfer> receives; /* in order within a slot; [0] is active if is_matched */
        Header header = {0, 0};        /* of the next message in the socket */
        size_t header_done = 0;
        bool is_matched = false; /* receives[0] is for `header` */
    };

    bool push(int peer);
    bool pull(int peer);
    bool match(int peer);
    bool move_all();
    void wait();
    int poll_patiently(nfds_t count);
    [[noreturn]] void lose(int peer);

    std::vector<Peer> peers_;
    std::vector<struct pollfd> polls_;
    int stop_fd_;
    struct comm_gloo_patience patience_;
};

class Buffer final : public ::gloo::transport::UnboundBuffer
{
  public:
    Buffer(Transport *transport, void *bytes, size_t byte_count)
        : UnboundBuffer(bytes, byte_count), transport_(transport)
    {
    }
    ~Buffer() override;

    bool waitRecv(int *peer, std::chrono::milliseconds timeout) override;
    bool waitSend(int *peer, std::chrono::milliseconds timeout) override;
    void abortWaitRecv() override;
    void abortWaitSend() override;
    void send(int peer, uint64_t slot, size_t offset, size_t byte_count) override;
    void recv(int peer, uint64_t slot, size_t offset, size_t byte_count) override;
    void recv(std::vector<int> peers, uint64_t slot, size_t offset, size_t byte_count) override;

    /* Ranks of completed transfers that were not waited for yet. */
    std::deque<int> sent, received;

  private:
    size_t clip(size_t offset, size_t byte_count) const;

    Transport *transport_; /* outlives this: both belong to one Gloo context */
};
} // namespace comm

#endif
