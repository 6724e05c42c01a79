"""JSON over HTTP for readiness checks, with errors as sentences."""

import json

import requests

from gauntlet.errors import GauntletError


def get(url: str, timeout: float, key: str | None = None) -> dict:
    """A JSON document; GauntletError with the status or the network's own words."""
    return _json("GET", url, None, timeout, key)


def post(url: str, body: dict, timeout: float, key: str | None = None) -> dict:
    """The JSON answer to a JSON body."""
    return _json("POST", url, body, timeout, key)


def completion(base_url: str, timeout: float, key: str | None = None) -> str:
    """The text of a real completion of four tokens over /v1/completions."""
    url = f"{base_url}/v1/completions"
    body = {"model": "default", "prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}
    answer = post(url, body, timeout, key)
    try:
        text, tokens = answer["choices"][0]["text"], answer["usage"]["completion_tokens"]
    except (KeyError, IndexError, TypeError):
        raise GauntletError(f"{url} answered without a completion: {json.dumps(answer)[:300]}") from None
    if not tokens:
        raise GauntletError(f"{url} completed without a single token")
    return text


def _json(method: str, url: str, body: dict | None, timeout: float, key: str | None) -> dict:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        answer = requests.request(method, url, json=body, headers=headers, timeout=timeout)
        answer.raise_for_status()
        document = answer.json()
    except (requests.RequestException, ValueError) as error:
        raise GauntletError(f"{url}: {error}") from None
    if not isinstance(document, dict):
        raise GauntletError(f"{url} answered with {type(document).__name__}, not with an object")
    return document
