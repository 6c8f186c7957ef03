"""A relay between a node and the server: it forwards the bytes of one unix socket to another, until the link is cut."""

import contextlib
import os
import selectors
import socket
import threading

HELD_BYTES_MAX = 8 << 20


class Relay(threading.Thread):
    """cut: the directions, of "up" (to the server) and "down", in which nothing arrives for a while; sent data arrives when the link is
    restored, as over TCP. reset: every connection ends, and data in flight is lost."""

    def __init__(self, path, target):
        super().__init__(daemon=True)
        self.path, self.target = path, target
        self.cuts = frozenset()
        self.held = {}  # socket: bytes not yet delivered to it
        self.peers = {}  # socket: (its peer, direction of the data read from it)
        self.wanted = []  # work for the thread
        self.lock = threading.Lock()
        self.selector = selectors.DefaultSelector()
        self.waker, self.woken = socket.socketpair()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(16)
        for one in (self.woken, self.listener):
            one.setblocking(False)
            self.selector.register(one, selectors.EVENT_READ)
        self.start()

    def ask(self, work):
        with self.lock:
            self.wanted.append(work)
        self.waker.send(b"x")

    def cut(self, directions):
        self.ask(lambda: setattr(self, "cuts", frozenset(directions)))

    def mend(self):
        self.cut(())

    def reset(self):
        self.ask(lambda: [self.drop(one) for one in list(self.peers)])

    def close(self):
        self.ask(None)
        self.join()
        os.unlink(self.path)

    def drop(self, one):
        for each in (one, self.peers.get(one, (None,))[0]):
            if self.peers.pop(each, None):
                self.selector.unregister(each)
                self.held.pop(each)
                each.close()

    def accept(self):
        with contextlib.suppress(OSError):
            node, _ = self.listener.accept()
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self.target)
            except OSError:  # the server does not run
                node.close()
                server.close()
                return
            for one, other, direction in ((node, server, "up"), (server, node, "down")):
                one.setblocking(False)
                self.peers[one] = (other, direction)
                self.held[one] = b""
                self.selector.register(one, selectors.EVENT_READ)

    def read(self, one):
        other, _ = self.peers[one]
        try:
            data = one.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(one)
            return
        self.held[other] += data

    def pass_on(self, one):
        """Writes pending bytes to `one`, unless that direction is cut."""
        other, back = self.peers[one]
        if ("down" if back == "up" else "up") in self.cuts or not self.held[one]:
            return
        try:
            self.held[one] = self.held[one][one.send(self.held[one]):]
        except BlockingIOError:
            return
        except OSError:
            self.drop(one)

    def watch(self, one):
        """Reads at most as much as the relay may hold, and waits until the rest can be written."""
        other, direction = self.peers[one]
        reads = len(self.held[other]) < HELD_BYTES_MAX
        cut = ("down" if direction == "up" else "up") in self.cuts
        events = (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if self.held[one] and not cut else 0)
        self.selector.modify(one, events or selectors.EVENT_READ)

    def run(self):
        while True:
            for key, events in self.selector.select():
                one = key.fileobj
                if one is self.listener:
                    self.accept()
                elif one is self.woken:
                    one.recv(4096)
                elif one in self.peers and events & selectors.EVENT_READ:
                    self.read(one)
            with self.lock:
                wanted, self.wanted = self.wanted, []
            for work in wanted:
                if work is None:
                    for one in list(self.peers):
                        self.drop(one)
                    self.listener.close()
                    return
                work()
            for one in list(self.peers):
                if one in self.peers:
                    self.pass_on(one)
            for one in self.peers:
                self.watch(one)
