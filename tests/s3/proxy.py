"""A TCP proxy before a server, for outages that no signal can make: refused connections and answers that get lost."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Forwards to a loopback port. ``refuse`` closes the door; ``lose_answers`` hangs up after each request."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._lose_answers = False
        self.lost_answers = 0
        # never listens: while the door is closed it keeps the port from others, and from a client's own connections
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind(("127.0.0.1", 0))
        self.port = self._holder.getsockname()[1]
        self.open()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        """Serve (again)."""
        self._lose_answers = False
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def refuse(self) -> None:
        """Cut what is open and take nothing new."""
        if self._listener is not None:
            # close alone does not wake a thread that waits in accept
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for connection in list(self._connections):
            self._hang_up(connection)

    def lose_answers(self) -> None:
        """The server does what it is asked, and nobody hears of it."""
        self._lose_answers = True

    def close(self) -> None:
        self.refuse()
        self._holder.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._upstream))
            except OSError:
                client.close()
                continue
            self._connections |= {client, server}
            for source, target, answers in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=(source, target, answers), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(65536):
                # "100 Continue" only asks for the body
                if answers and self._lose_answers and not block.startswith(b"HTTP/1.1 100"):
                    self.lost_answers += 1
                    break
                target.sendall(block)
        self._hang_up(source)
        self._hang_up(target)

    def _hang_up(self, connection: socket.socket) -> None:
        self._connections.discard(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
