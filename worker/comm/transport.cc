/* Gloo's transport interface on connected sockets. See transport.h. */
#include "worker/comm/transport.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <sys/socket.h>
#include <sys/uio.h>

namespace comm
{
namespace
{
/* Gloo's collectives require that a pair exists for each peer, but use only buffers. */
class NoPair final : public ::gloo::transport::Pair
{
  public:
    const ::gloo::transport::Address &address() const override
    {
        refuse();
    }
    void connect(const std::vector<char> &) override
    {
        refuse();
    }
    void close() override
    {
    }
    void setSync(bool, bool) override
    {
        refuse();
    }
    std::unique_ptr<::gloo::transport::Buffer> createSendBuffer(int, void *, size_t) override
    {
        refuse();
    }
    std::unique_ptr<::gloo::transport::Buffer> createRecvBuffer(int, void *, size_t) override
    {
        refuse();
    }
    void send(::gloo::transport::UnboundBuffer *, uint64_t, size_t, size_t) override
    {
        refuse();
    }
    void recv(::gloo::transport::UnboundBuffer *, uint64_t, size_t, size_t) override
    {
        refuse();
    }

  private:
    [[noreturn]] static void refuse()
    {
        throw Failure(COMM_GLOO_FAILED, UINT32_MAX, "pairs are not supported");
    }
};

int to_ms(uint64_t us)
{
    return static_cast<int>(std::min<uint64_t>(us / 1000 + 1, INT_MAX));
}
} // namespace

Failure::Failure(enum comm_gloo_result result, uint32_t rank, const char *format, ...)
    : failure_{result, rank, ""}
{
    va_list args;

    va_start(args, format);
    (void)std::vsnprintf(failure_.text, sizeof failure_.text, format, args);
    va_end(args);
}

Transport::Transport(int own_rank, int world, const int *fds, int stop_fd,
                     const struct comm_gloo_patience &patience)
    : ::gloo::transport::Context(own_rank, world), peers_(static_cast<size_t>(world)),
      polls_(static_cast<size_t>(world) + 1), stop_fd_(stop_fd), patience_(patience)
{
    for (int i = 0; i < world; i++)
        if (i != own_rank) {
            peers_[static_cast<size_t>(i)].fd = fds[i];
            (void)createPair(i);
        }
}

std::unique_ptr<::gloo::transport::Pair> &Transport::createPair(int peer)
{
    pairs_.at(static_cast<size_t>(peer)) = std::make_unique<NoPair>();
    return pairs_[static_cast<size_t>(peer)];
}

std::unique_ptr<::gloo::transport::UnboundBuffer> Transport::createUnboundBuffer(void *bytes,
                                                                                 size_t byte_count)
{
    return std::make_unique<Buffer>(this, bytes, byte_count);
}

void Transport::lose(int peer)
{
    throw Failure(COMM_GLOO_PEER_GONE, static_cast<uint32_t>(peer), "%s",
                  errno == 0 ? "end of stream" : std::strerror(errno));
}

void Transport::post_send(Buffer *buffer, int peer, uint64_t slot, size_t offset, size_t byte_count)
{
    Peer &to = peers_.at(static_cast<size_t>(peer));

    to.sends.push_back(
        {buffer, {slot, byte_count}, static_cast<uint8_t *>(buffer->ptr) + offset, 0, 0});
    if (to.sends.size() == 1)
        (void)push(peer); /* usually the socket has room for all of it */
}

void Transport::post_receive(Buffer *buffer, int peer, uint64_t slot, size_t offset,
                             size_t byte_count)
{
    Peer &from = peers_.at(static_cast<size_t>(peer));

    from.receives.push_back(
        {buffer, {slot, byte_count}, static_cast<uint8_t *>(buffer->ptr) + offset, 0, 0});
}

void Transport::forget(const Buffer *buffer)
{
    auto is_its = [buffer](const Transfer &transfer) { return transfer.buffer == buffer; };

    for (Peer &peer : peers_) {
        peer.sends.erase(std::remove_if(peer.sends.begin(), peer.sends.end(), is_its),
                         peer.sends.end());
        peer.receives.erase(std::remove_if(peer.receives.begin(), peer.receives.end(), is_its),
                            peer.receives.end());
    }
}

/* Sends as much as the socket takes; true if anything was sent. */
bool Transport::push(int peer)
{
    Peer &to = peers_[static_cast<size_t>(peer)];
    bool moved = false;

    while (!to.sends.empty()) {
        Transfer &transfer = to.sends.front();
        struct iovec parts[2] = {
            {reinterpret_cast<uint8_t *>(&transfer.header) + transfer.header_done,
             sizeof transfer.header - transfer.header_done},
            {transfer.bytes + transfer.done, transfer.header.byte_count - transfer.done}};
        struct msghdr message = {};
        size_t header_part;
        ssize_t n;

        message.msg_iov = parts;
        message.msg_iovlen = 2;
        n = sendmsg(to.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return moved;
        if (n < 0)
            lose(peer);
        moved = true;
        header_part = std::min(static_cast<size_t>(n), parts[0].iov_len);
        transfer.header_done += header_part;
        transfer.done += static_cast<size_t>(n) - header_part;
        assert(transfer.done <= transfer.header.byte_count);
        if (transfer.header_done < sizeof transfer.header ||
            transfer.done < transfer.header.byte_count)
            continue;
        transfer.buffer->sent.push_back(peer);
        to.sends.pop_front();
    }
    return moved;
}

/* Moves the posted receive for the next message in the socket to the front of the queue; false if
 * it is not posted yet. */
bool Transport::match(int peer)
{
    Peer &from = peers_[static_cast<size_t>(peer)];
    auto posted =
        std::find_if(from.receives.begin(), from.receives.end(), [&from](const Transfer &transfer) {
            return transfer.header.slot == from.header.slot;
        });

    if (posted == from.receives.end())
        return false;
    if (posted->header.byte_count != from.header.byte_count)
        throw Failure(COMM_GLOO_MISMATCH, static_cast<uint32_t>(peer),
                      "it sends %llu bytes where %llu are expected",
                      static_cast<unsigned long long>(from.header.byte_count),
                      static_cast<unsigned long long>(posted->header.byte_count));
    std::rotate(from.receives.begin(), posted, posted + 1);
    from.is_matched = true;
    return true;
}

/* Receives what has arrived for posted receives; true if anything was received. */
bool Transport::pull(int peer)
{
    Peer &from = peers_[static_cast<size_t>(peer)];
    bool moved = false;

    while (!from.receives.empty()) {
        uint8_t *to = reinterpret_cast<uint8_t *>(&from.header) + from.header_done;
        size_t room = sizeof from.header - from.header_done;
        ssize_t n = 0;

        if (room == 0 && !from.is_matched && !match(peer))
            return moved;
        if (from.is_matched) {
            to = from.receives.front().bytes + from.receives.front().done;
            room = from.header.byte_count - from.receives.front().done;
        }
        if (room > 0) {
            errno = 0;
            n = ::recv(from.fd, to, room, MSG_DONTWAIT);
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0 && errno == EAGAIN)
                return moved;
            if (n <= 0)
                lose(peer);
            moved = true;
        }
        if (!from.is_matched) {
            from.header_done += static_cast<size_t>(n);
            continue;
        }
        from.receives.front().done += static_cast<size_t>(n);
        assert(from.receives.front().done <= from.header.byte_count);
        if (from.receives.front().done < from.header.byte_count)
            continue;
        from.receives.front().buffer->received.push_back(peer);
        from.receives.pop_front();
        from.is_matched = false;
        from.header_done = 0;
        moved = true;
    }
    return moved;
}

bool Transport::move_all()
{
    bool moved = false;

    for (int i = 0; i < size; i++) {
        if (peers_[static_cast<size_t>(i)].fd < 0)
            continue;
        if (!peers_[static_cast<size_t>(i)].sends.empty())
            moved |= push(i);
        if (!peers_[static_cast<size_t>(i)].receives.empty())
            moved |= pull(i);
    }
    return moved;
}

/* poll(), as long as the patience lasts. */
int Transport::poll_patiently(nfds_t count)
{
    using std::chrono::microseconds;
    const auto begun = std::chrono::steady_clock::now();
    uint64_t more_us = patience_.timeout_us;

    while (more_us > 0) {
        const int rc = ::poll(polls_.data(), count, to_ms(more_us));
        const auto waited = std::chrono::steady_clock::now() - begun;

        if (rc != 0)
            return rc;
        more_us = patience_.more_us(
            patience_.user,
            static_cast<uint64_t>(std::chrono::duration_cast<microseconds>(waited).count()));
    }
    return 0;
}

/* Sleeps until a transfer can continue. Peers without transfers are not polled: the star detects
 * when they are lost. */
void Transport::wait()
{
    nfds_t count = 0;
    int awaited = -1;
    int rc;

    polls_[count++] = {stop_fd_, POLLIN, 0};
    for (int i = 0; i < size; i++) {
        const Peer &peer = peers_[static_cast<size_t>(i)];
        int events = (peer.sends.empty() ? 0 : POLLOUT) | (peer.receives.empty() ? 0 : POLLIN);

        if (peer.header_done == sizeof peer.header && !peer.is_matched)
            events &= ~POLLIN; /* its next message is for a receive that is not posted yet */
        if (events == 0)
            continue;
        if (awaited < 0 || (events & POLLIN) != 0)
            awaited = i;
        polls_[count++] = {peer.fd, static_cast<short>(events), 0};
    }
    rc = poll_patiently(count);
    if (rc == 0)
        throw Failure(COMM_GLOO_STALLED, static_cast<uint32_t>(awaited), "no byte moved for %d ms",
                      to_ms(patience_.timeout_us));
    if (rc < 0 && errno != EINTR)
        throw Failure(COMM_GLOO_FAILED, UINT32_MAX, "poll: %s", std::strerror(errno));
    if (rc > 0 && polls_[0].revents != 0)
        throw Failure(COMM_GLOO_STOPPED, UINT32_MAX, "stopped");
}

template <typename Done> void Transport::run_until(Done is_done)
{
    while (!is_done())
        if (!move_all())
            wait();
}

Buffer::~Buffer()
{
    transport_->forget(this);
}

bool Buffer::waitRecv(int *peer, std::chrono::milliseconds)
{
    transport_->run_until([this] { return !received.empty(); });
    if (peer != nullptr)
        *peer = received.front();
    received.pop_front();
    return true;
}

bool Buffer::waitSend(int *peer, std::chrono::milliseconds)
{
    transport_->run_until([this] { return !sent.empty(); });
    if (peer != nullptr)
        *peer = sent.front();
    sent.pop_front();
    return true;
}

void Buffer::abortWaitRecv()
{
    throw Failure(COMM_GLOO_FAILED, UINT32_MAX, "abortWaitRecv is not supported");
}

void Buffer::abortWaitSend()
{
    throw Failure(COMM_GLOO_FAILED, UINT32_MAX, "abortWaitSend is not supported");
}

size_t Buffer::clip(size_t offset, size_t byte_count) const
{
    assert(offset <= size);
    if (byte_count == kUnspecifiedByteCount)
        byte_count = size - offset;
    assert(byte_count <= size - offset);
    return byte_count;
}

void Buffer::send(int peer, uint64_t slot, size_t offset, size_t byte_count)
{
    transport_->post_send(this, peer, slot, offset, clip(offset, byte_count));
}

void Buffer::recv(int peer, uint64_t slot, size_t offset, size_t byte_count)
{
    transport_->post_receive(this, peer, slot, offset, clip(offset, byte_count));
}

void Buffer::recv(std::vector<int>, uint64_t, size_t, size_t)
{
    throw Failure(COMM_GLOO_FAILED, UINT32_MAX, "receiving from anybody is not supported");
}
} // namespace comm
