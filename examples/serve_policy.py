"""Serve an exported policy over HTTP, one account per episode; needs numpy and the standard
library.

    canary export RUN --format numpy --file policy.npz
    python examples/serve_policy.py policy.npz --port 8000 --sha256 DIGEST     the certified policy and no other

    POST   /episodes             {"seed": 0}              -> {"episode": ID, "spent": 0, "remaining": LIMIT}
    POST   /episodes/ID/act      {"observation": [...]}   -> {"action": A, "risk": R, "spent": Y, ...}
    POST   /episodes/ID/spend    {"cost": 1.0}            -> {"spent": Y, "remaining": LIMIT - Y}
    DELETE /episodes/ID                                   -> {}
    GET    /                                              -> what the policy is

The policy depends on the cost that an episode has spent, so a client opens an episode, then acts
and spends in turn. `act` also takes "deterministic": true, and `spend` "ended": true. `risk` is the
critics' bound on the probability that the episode ends above the limit (null for methods without
such critics).
"""

import argparse
import json
import re
import secrets
import threading
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

try:
    from canary.export import numpy_policy
except ImportError:  # numpy_policy.py copied beside this file: no other part of canary is needed
    import numpy_policy  # type: ignore[no-redef]

MOST_EPISODES = 10_000  # open at once; the one that was used longest ago is closed to make room
LARGEST_BODY = 1 << 20


class Episodes:
    """The open episodes of one policy; each is used by one request at a time."""

    def __init__(self, policy: Any, most: int = MOST_EPISODES):
        self.policy, self._most = policy, most
        self._open: OrderedDict[str, tuple[Any, threading.Lock]] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, request: dict[str, Any]) -> dict[str, Any]:
        episode, name = self.policy.start(request.get("seed")), secrets.token_hex(8)
        with self._lock:
            self._open[name] = episode, threading.Lock()
            if len(self._open) > self._most:
                self._open.popitem(last=False)
        return {"episode": name} | account(episode)

    def act(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        episode, lock = self._find(name)
        with lock:
            observation = request.get("observation")
            risk = episode.risk(observation) if self.policy.has_critics else None
            action = episode.act(
                observation, deterministic=bool(request.get("deterministic", False))
            )
            action = action if isinstance(action, int) else action.tolist()
            return {"action": action, "risk": risk} | account(episode)

    def spend(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        episode, lock = self._find(name)
        with lock:
            episode.spend(request.get("cost"), ended=bool(request.get("ended", False)))
            return account(episode)

    def close(self, name: str) -> dict[str, Any]:
        self._find(name)
        with self._lock:
            self._open.pop(name, None)
        return {}

    def _find(self, name: str) -> tuple[Any, threading.Lock]:
        with self._lock:
            found = self._open.get(name)
            if found is None:
                raise LookupError(
                    f"There is no open episode {name}; start one with POST /episodes."
                )
            self._open.move_to_end(name)
            return found


def account(episode: Any) -> dict[str, float]:
    return {"spent": episode.spent, "remaining": episode.remaining}


class Handler(BaseHTTPRequestHandler):
    """JSON in, JSON out: 400 for a mistake, 404 for an unknown place or episode; `error` says
    why."""

    protocol_version = "HTTP/1.1"
    episodes: Episodes

    def do_GET(self) -> None:
        self._answer(lambda: self._route("GET"))

    def do_POST(self) -> None:
        self._answer(lambda: self._route("POST"))

    def do_DELETE(self) -> None:
        self._answer(lambda: self._route("DELETE"))

    def log_message(self, format: str, *arguments: Any) -> None:
        """Be quiet: a line per action would drown everything else."""

    def _route(self, method: str) -> dict[str, Any]:
        request = self._body()
        place = re.fullmatch(r"/(?:episodes(?:/([0-9a-f]+)(?:/(act|spend))?)?)?", self.path)
        name, verb = (place[1], place[2]) if place else (None, None)
        if method == "GET" and self.path == "/":
            return self.episodes.policy.metadata
        if method == "POST" and self.path == "/episodes":
            return self.episodes.start(request)
        if method == "POST" and name and verb:
            return (self.episodes.act if verb == "act" else self.episodes.spend)(name, request)
        if method == "DELETE" and name and not verb:
            return self.episodes.close(name)
        raise LookupError(f"There is no {method} {self.path}.")

    def _body(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 <= length <= LARGEST_BODY:
            self.close_connection = True  # the rest of the request stays unread
            raise ValueError(f"A request must not be larger than {LARGEST_BODY} bytes.")
        request = json.loads(self.rfile.read(length) or b"{}")
        if not isinstance(request, dict):
            raise ValueError("A request must be a JSON object.")
        return request

    def _answer(self, work: Any) -> None:
        try:
            status, answer = 200, work()
        except LookupError as error:
            status, answer = 404, {"error": str(error.args[0])}
        except (ValueError, TypeError) as error:
            status, answer = 400, {"error": str(error)}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def make_server(
    policy: Any, host: str = "127.0.0.1", port: int = 0, most: int = MOST_EPISODES
) -> ThreadingHTTPServer:
    """A server for one policy; port 0 takes a free one, which `server_address` tells."""
    handler = type("PolicyHandler", (Handler,), {"episodes": Episodes(policy, most)})
    return ThreadingHTTPServer((host, port), handler)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve an exported policy over HTTP.")
    parser.add_argument("policy", help="the .npz that `canary export --format numpy` wrote")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="there is no password: keep it local, or behind something",
    )
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument(
        "--sha256", help="the policy_sha256 of its certificate: serve no other policy"
    )
    options = parser.parse_args()
    server = make_server(
        numpy_policy.load(options.policy, options.sha256), options.host, options.port
    )
    print(
        f"Serving {options.policy} at http://{options.host}:{server.server_address[1]} (Ctrl-C "
        "stops)",
        flush=True,
    )
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
