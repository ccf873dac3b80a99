"""The serving example: real requests to a real server on this machine."""

import io
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import numpy as np
import pytest
from examples.serve_policy import make_server

from canary.exporting import numpy_policy
from canary.exporting.formats import numpy_bytes
from exporting.portable_policies import OBSERVATIONS, make_portable, with_critics


def ask(url: str, method: str, path: str, body: object = None) -> tuple[int, dict]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def policy() -> numpy_policy.NumpyPolicy:
    return numpy_policy.load(io.BytesIO(numpy_bytes(with_critics(make_portable()))))


@pytest.fixture(scope="module")
def url(policy: numpy_policy.NumpyPolicy) -> Iterator[str]:
    server = make_server(policy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_episode_over_http_is_an_episode(url: str, policy: numpy_policy.NumpyPolicy):
    status, started = ask(url, "POST", "/episodes", {"seed": 4})
    assert (status, started["remaining"]) == (200, 2.5)
    place, local = f"/episodes/{started['episode']}", policy.start(4)
    for observation, cost in zip(np.eye(OBSERVATIONS), [0, 1, 0.5, 0, 2], strict=True):
        risk, action = local.risk(observation), local.act(observation)
        status, answer = ask(url, "POST", f"{place}/act", {"observation": observation.tolist()})
        assert (status, answer["action"]) == (200, action)
        assert answer["risk"] == pytest.approx(risk)
        local.spend(cost)
        assert ask(url, "POST", f"{place}/spend", {"cost": cost}) == (
            200,
            {"spent": local.spent, "remaining": local.remaining},
        )
    status, answer = ask(url, "POST", f"{place}/act", {"observation": [1, 2]})
    assert status == 400
    assert "shape" in answer["error"]
    assert ask(url, "DELETE", place) == (200, {})
    assert ask(url, "POST", f"{place}/spend", {"cost": 0})[0] == 404
