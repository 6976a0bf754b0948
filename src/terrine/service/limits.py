"""What callers may ask of the service, and how it refuses them."""

from __future__ import annotations

from dataclasses import dataclass

from terrine.errors import TerrineError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What callers may ask of one server process.

    Attributes:
        body, json: bytes of a body; JSON takes more memory than it is long.
        rows: in one request.
        rate: requests per second and key; twice as many at once.
        seconds: for a body to arrive, and again for its answers.
        pace: seconds; answers are sent at whole multiples of it after they were asked for, and votes are waited for as
            `PacedVoters` says, so that how long they took does not tell what they are. 0 turns both off.
        waiting: requests that may wait.
        header: seconds for a request's header to arrive, and for each next piece of its body.
        least: bytes per second of a body, on average, once ``header`` seconds are over.
        connections, connections_per_address: open at once. Where one more comes, the connection that has waited
            longest for a whole header is closed; if there is none, the new one is refused.
        in_flight: bytes of all bodies that are being received or answered; one key may hold half of it.
    """

    body: int = 32 << 20
    json: int = 8 << 20
    rows: int = 10_000
    rate: float = 200.0
    seconds: float = 60.0
    pace: float = 0.02
    waiting: int = 1024
    header: float = 10.0
    least: int = 16 << 10
    connections: int = 1000
    connections_per_address: int = 500
    in_flight: int = 256 << 20


class Refused(TerrineError):
    """An error of the wire: its status and code."""

    def __init__(self, status: int, code: str, message: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers


def busy(message: str) -> Refused:
    """One that may be sent again in a second."""
    return Refused(503, "busy", message, headers={"Retry-After": "1"})


class BytesInFlight:
    """How much of all bodies is in memory, and whose it is."""

    def __init__(self, most: int) -> None:
        self._most, self._total = most, 0
        self._by_key: dict[str, int] = {}

    def add(self, key: str, size: int) -> None:
        """Count ``size`` more bytes of a key's bodies, or refuse them."""
        mine = self._by_key.get(key, 0) + size
        if self._total + size > self._most:
            raise busy("The service holds as many request bodies as it can. Send the request again in a second.")
        if mine > self._most / 2:
            raise busy(
                "The service holds as many request bodies of this key as it can. Send the request again in a second."
            )
        self._total += size
        self._by_key[key] = mine

    def remove(self, key: str, size: int) -> None:
        self._total -= size
        left = self._by_key.get(key, 0) - size
        if left > 0:
            self._by_key[key] = left
        else:
            self._by_key.pop(key, None)
