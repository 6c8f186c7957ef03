/* A transport for Gloo: its collectives, our sockets. C++ only, for the shim.
 *
 * Gloo's own TCP transport was refused: it takes the first caller on each of its ports for the
 * peer, cannot be interrupted while it waits, does not say which rank it waited for, and its thread
 * wakes up 100 times a second. Here the connections come ready and checked (comm_mesh), and the
 * thread that waits does the I/O: no other thread, no lock.
 *
 * A message is a header (slot, byte count) and its bytes. It stays in the socket until its receiver
 * has posted a buffer for it, so there is one copy and no queue of ours. That cannot deadlock where
 * each rank posts its receives from a peer in the order in which that peer sends, as Gloo's
 * all-reduce, broadcast, all-gather and barrier do. */
#ifndef WORKER_COMM_COMM_TRANSPORT_H
#define WORKER_COMM_COMM_TRANSPORT_H

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

#include "worker/comm/comm_gloo.h"

namespace comm
{
class Buffer;

/* What ends a collective. */
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
    Transport(int own_rank, int world, const int *fds, int stop_fd, uint64_t timeout_us);

    std::unique_ptr<::gloo::transport::Pair> &createPair(int peer) override;
    std::unique_ptr<::gloo::transport::UnboundBuffer>
    createUnboundBuffer(void *bytes, size_t byte_count) override;

    void post_send(Buffer *buffer, int peer, uint64_t slot, size_t offset, size_t byte_count);
    void post_receive(Buffer *buffer, int peer, uint64_t slot, size_t offset, size_t byte_count);
    /* Moves bytes until `is_done()`; throws Failure. */
    template <typename Done> void run_until(Done is_done);
    /* Forgets what was posted for a buffer that goes away. */
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
        std::deque<Transfer> sends; /* in order */
        std::deque<Transfer>
            receives; /* in order within a slot; [0] is under way once its header matched */
        Header header = {0, 0}; /* of the message at the head of the socket */
        size_t header_done = 0;
        bool is_matched = false; /* receives[0] is for `header` */
    };

    bool push(int peer);
    bool pull(int peer);
    bool match(int peer);
    bool move_all();
    void wait();
    [[noreturn]] void lose(int peer);

    std::vector<Peer> peers_;
    std::vector<struct pollfd> polls_;
    int stop_fd_;
    int timeout_ms_;
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

    /* Completed and not waited for yet, by rank. */
    std::deque<int> sent, received;

  private:
    size_t clip(size_t offset, size_t byte_count) const;

    Transport *transport_; /* outlives us: both belong to one Gloo context */
};
} // namespace comm

#endif
