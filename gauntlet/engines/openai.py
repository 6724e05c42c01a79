"""The two requests of a readiness check that every engine understands."""

import json

import requests

from gauntlet.errors import GauntletError


def headers(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def get(url: str, timeout: float, key: str | None = None) -> dict:
    """A JSON document; GauntletError with the status or the network's own words."""
    return _json(lambda: requests.get(url, headers=headers(key), timeout=timeout), url)


def completion(base_url: str, timeout: float, key: str | None = None) -> str:
    """The text of a real completion of four tokens. `/health` alone is no proof of service."""
    url = f"{base_url}/v1/completions"
    body = {"model": "default", "prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}
    answer = _json(lambda: requests.post(url, json=body, headers=headers(key), timeout=timeout), url)
    try:
        text, tokens = answer["choices"][0]["text"], answer["usage"]["completion_tokens"]
    except (KeyError, IndexError, TypeError):
        raise GauntletError(f"{url} answered without a completion: {json.dumps(answer)[:300]}") from None
    if not tokens:
        raise GauntletError(f"{url} completed without a single token")
    return text


def _json(call, url: str) -> dict:
    try:
        answer = call()
        answer.raise_for_status()
        return answer.json()
    except (requests.RequestException, ValueError) as error:
        raise GauntletError(f"{url}: {error}") from None
