"""The workers of a training on a cluster: sums and messages over TCP, and a watch for lost workers.

Worker 0 is the hub. All others are connected to it, so that a worker that dies closes a connection.
"""

import json
import select
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from secrets import compare_digest

import numpy as np

from twinrank.learning.training.process_group import ProcessGroup, ProcessLostError
from twinrank.support.errors import InputError

JOIN_SECONDS = 600.0
"""How long workers wait for each other before the training starts."""
_LOOK_SECONDS = 0.5
_LENGTH = 8  # bytes
# A machine that loses its power or its network closes no connection: 20 + 4 · 5 seconds.
# By name: macOS lacks the first.
_OPTIONS = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_NODELAY": 1}


def open_hub() -> socket.socket:
    """The socket of worker 0, to which the other workers connect."""
    return socket.create_server(("", 0), backlog=1024)


class SocketGroup(ProcessGroup):
    """One of several workers, each with its own part of the data.

    `hub` is the socket of `open_hub` for worker 0, and its address for the others. `token` is a
    secret of this training: connections without it are ignored.
    """

    def __init__(
        self, rank: int, size: int, hub: socket.socket | tuple[str, int], token: str
    ) -> None:
        self.rank, self.size = rank, size
        self.lost = threading.Event()
        """Set when the connection to another worker is lost."""
        self.on_loss: Callable[[], None] = lambda: None
        """Called again and again after a loss, until the group is left: makes an engine give up."""
        self._over = threading.Event()
        self._left = False
        if isinstance(hub, socket.socket):
            self._links = _accepted(hub, size, token)
        else:
            self._links = [_connected(hub, rank, token)]
        for link in self._links:
            _keep_alive(link)
        # Messages have no time limit: a worker may take hours for its part of the data.
        threading.Thread(target=self._watch, daemon=True, name="twinrank-watch").start()

    @property
    def host(self) -> str:
        """The address at which the other workers reach this one; "" of a lone worker."""
        return str(self._links[0].getsockname()[0]) if self._links else ""

    def all_gather(self, message: str) -> list[str]:
        """The message of each worker."""
        if self._left:  # a lone worker has no connection that would fail
            raise lost_worker()
        try:
            if self.rank:
                _send(self._links[0], message)
                messages: list[str] = json.loads(_receive(self._links[0]))
                return messages
            messages = [message, *map(_receive, self._links)]
            for link in self._links:
                _send(link, json.dumps(messages))
            return messages
        except OSError as error:
            self._shut()
            raise lost_worker() from error

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        """The sum of each value over the workers: the same bits for all of them."""
        own = json.dumps([float(value) for value in values])
        sums = np.sum([json.loads(message) for message in self.all_gather(own)], axis=0)
        return [float(value) for value in sums]

    add_parts = all_reduce

    def finish(self) -> None:
        """Wait for all other workers; from here on, they may leave."""
        self._over.set()
        self.all_gather("")

    def close(self) -> None:
        """Leave the group. Without `finish`, the other workers count this one as lost."""
        self._left = True
        self._over.set()
        self._shut()
        for link in self._links:
            link.close()

    def _shut(self) -> None:
        """End all connections: a thread that waits for a message gets an error."""
        for link in self._links:
            with suppress(OSError):  # it is closed
                link.shutdown(socket.SHUT_RDWR)

    def _watch(self) -> None:
        """Notice a lost worker while this one is busy, for example inside an engine."""
        poller = select.poll()
        for link in self._links:
            poller.register(link, select.POLLRDHUP)
        while not self._over.is_set():
            if not poller.poll(1000 * _LOOK_SECONDS) or self._over.is_set():
                continue
            self.lost.set()
            self._shut()
            self.on_loss()
            self._over.wait(_LOOK_SECONDS)


def lost_worker() -> ProcessLostError:
    """The error of the workers that remain."""
    return ProcessLostError("Another worker of this training has died or cannot be reached.")


def _accepted(hub: socket.socket, size: int, token: str) -> list[socket.socket]:
    """The connections of all other workers, by rank."""
    links: dict[int, socket.socket] = {}
    with hub:
        while len(links) < size - 1:
            hub.settimeout(JOIN_SECONDS)
            try:
                link, _ = hub.accept()
            except TimeoutError as error:
                missing = sorted({*range(1, size)} - {*links})
                raise InputError(
                    f"The workers {missing} of {size} did not start within {JOIN_SECONDS:.0f} "
                    f"seconds. All must run at the same time: free them, or use fewer."
                ) from error
            try:
                link.settimeout(10)
                rank, theirs = _receive(link, 1000).split()
                if not compare_digest(theirs.encode(), token.encode()):
                    raise ValueError("unknown token")
            except (OSError, ValueError):
                link.close()
                continue
            link.settimeout(None)
            links[int(rank)] = link
    return [links[rank] for rank in sorted(links)]


def _connected(address: tuple[str, int], rank: int, token: str) -> socket.socket:
    try:
        link = socket.create_connection(address, timeout=JOIN_SECONDS)
        _send(link, f"{rank} {token}")
    except OSError as error:
        raise ProcessLostError(
            f"Worker {rank} cannot reach worker 0 at {address[0]}:{address[1]} ({error})."
        ) from error
    link.settimeout(None)
    return link


def _keep_alive(link: socket.socket) -> None:
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _OPTIONS.items():
        link.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _send(link: socket.socket, message: str) -> None:
    content = message.encode()
    link.sendall(len(content).to_bytes(_LENGTH, "big") + content)


def _receive(link: socket.socket, most: int | None = None) -> str:
    length = int.from_bytes(_exactly(link, _LENGTH), "big")
    if most is not None and length > most:
        raise ValueError("the message is too long")
    return _exactly(link, length).decode()


def _exactly(link: socket.socket, count: int) -> bytes:
    content = bytearray()
    while len(content) < count:
        part = link.recv(min(count - len(content), 1 << 20))
        if not part:
            raise ConnectionError("the connection was closed")
        content += part
    return bytes(content)
