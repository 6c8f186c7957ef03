"""A unix socket in front of a server's: what passes can be counted, looked at, or lost."""
import socket
import threading


def end_both(*sockets):
    """Ends these connections, whichever end has closed them already."""
    for one in sockets:
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Relay:
    """Forwards connections of one listening socket; `answered` is set when the far side has sent something."""

    def __init__(self, listener):
        self.answered = threading.Event()
        self.listener = listener
        self.thread = threading.Thread(target=self.accept)
        self.thread.start()

    def connect(self):
        """Opens the far side of a new connection. OSError: there is none."""
        raise NotImplementedError

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            try:
                far = self.connect()
            except OSError:
                near.close()
                continue
            threading.Thread(target=self.copy, args=(near, far, None), daemon=True).start()
            threading.Thread(target=self.copy, args=(far, near, self.answered), daemon=True).start()

    def copy(self, source, target, passed):
        """Copies one direction until it ends, and ends both then. `passed` is set where it comes from the far side."""
        try:
            self.move(source, target, passed)
        except OSError:
            pass
        end_both(source, target)

    def move(self, source, target, passed):
        """What passes; for a relay that is to look at it. It returns, or raises OSError, when the connection is to end."""
        while data := source.recv(65536):
            target.sendall(data)
            if passed:
                passed.set()

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self.listener.close()
        self.thread.join()


class UnixRelay(Relay):
    """A unix socket in front of the server's."""

    def __init__(self, path, target):
        self.target = target
        self.address = f"unix:{path}"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(16)
        super().__init__(listener)

    def connect(self):
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(self.target)
        except OSError:
            far.close()
            raise
        return far
