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
such critics). Requests are answered one at a time.
"""

import argparse
import json
import secrets
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

try:
    from canary.exporting import numpy_policy
except ImportError:  # numpy_policy.py copied beside this file: no other part of canary is needed
    import numpy_policy  # type: ignore[no-redef]

MOST_EPISODES = 10_000  # open at once; the oldest is closed to make room


class Handler(BaseHTTPRequestHandler):
    """JSON in, JSON out: 400 for a mistake, 404 for an unknown place or episode; `error` says
    why."""

    policy: Any
    episodes: dict[str, Any]

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Be quiet: a line per action would drown everything else."""

    def _route(self, method: str, request: dict[str, Any]) -> dict[str, Any]:
        if (method, self.path) == ("GET", "/"):
            return self.policy.metadata
        if (method, self.path) == ("POST", "/episodes"):
            name = secrets.token_hex(8)
            self.episodes[name] = self.policy.start(request.get("seed"))
            if len(self.episodes) > MOST_EPISODES:
                del self.episodes[next(iter(self.episodes))]
            return {"episode": name} | account(self.episodes[name])
        _, _, name, *verb = f"{self.path}//".split("/")[:4]
        if name not in self.episodes:
            raise LookupError(f"There is no open episode {name!r}; start one with POST /episodes.")
        episode = self.episodes[name]
        if (method, verb) == ("DELETE", [""]):
            del self.episodes[name]
            return {}
        if (method, verb) == ("POST", ["spend"]):
            episode.spend(request.get("cost"), ended=bool(request.get("ended", False)))
            return account(episode)
        if (method, verb) == ("POST", ["act"]):
            seen, likely = request.get("observation"), bool(request.get("deterministic", False))
            risk = episode.risk(seen) if self.policy.has_critics else None
            action = episode.act(seen, deterministic=likely)
            action = action if isinstance(action, int) else action.tolist()
            return {"action": action, "risk": risk} | account(episode)
        raise LookupError(f"There is no {method} {self.path}.")

    def _answer(self, method: str) -> None:
        try:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = 200, self._route(method, json.loads(body or b"{}"))
        except LookupError as error:
            status, answer = 404, {"error": str(error.args[0])}
        except (AttributeError, ValueError, TypeError) as error:
            status, answer = 400, {"error": str(error)}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def account(episode: Any) -> dict[str, float]:
    return {"spent": episode.spent, "remaining": episode.remaining}


def make_server(policy: Any, host: str = "127.0.0.1", port: int = 0) -> HTTPServer:
    """A server for one policy; port 0 takes a free one: `server_address`."""
    handler = type("PolicyHandler", (Handler,), {"policy": policy, "episodes": {}})
    return HTTPServer((host, port), handler)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve an exported policy over HTTP.")
    parser.add_argument("policy", help="the .npz that `canary export --format numpy` wrote")
    parser.add_argument("--host", default="127.0.0.1", help="there is no password: keep it local")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--sha256", help="serve only the policy of this certificate")
    options = parser.parse_args()
    policy = numpy_policy.load(options.policy, options.sha256)
    server = make_server(policy, options.host, options.port)
    print(
        f"Serving {options.policy} at http://{options.host}:{server.server_address[1]}", flush=True
    )
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
