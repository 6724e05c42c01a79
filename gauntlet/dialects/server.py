"""A live server's other doors: plain JSON requests, never inside a measured window."""

import requests

from gauntlet.dialects.reading import Reading, message_of
from gauntlet.errors import GauntletError

TIMEOUT_S = 60


class Server:
    """Base of the dialects. `key_file` is only named in messages; the key itself goes into one header."""

    chat = False

    def __init__(self, base_url: str, key: str | None = None, key_file: str | None = None, model: str | None = None):
        self.base_url = base_url.rstrip("/")
        self.key_file, self.model = key_file, model
        self.headers = {"Content-Type": "application/json"}
        if key:
            self.headers["Authorization"] = f"Bearer {key}"

    def json(self, path: str, missing: str | None = None) -> dict:
        """GET a JSON object; `missing` is the older name of the path, tried on 404."""
        answer = self._call("GET", path)
        if answer.status_code == 404 and missing:
            answer = self._call("GET", missing)
        return self._object(answer)

    def post(self, path: str, body: dict) -> dict:
        """POST; the answer's JSON object, or {} for a text."""
        return self._object(self._call("POST", path, body))

    def counters_now(self) -> dict[str, float] | None:
        """The counters as they stand, or None where the server has no /metrics."""
        answer = self._call("GET", "/metrics")
        if answer.status_code in (404, 501):
            return None
        if not answer.ok:
            self._object(answer)
        return self.counters(answer.text) or None

    @classmethod
    def counters(cls, text: str) -> dict[str, float]:
        """Counters of a /metrics page; a server that we know nothing of has none."""
        return {}

    def facts(self) -> dict:
        """{'model': …} of the first model listed."""
        models = self.json("/v1/models").get("data") or [{}]
        return {"model": models[0].get("root") or models[0].get("id")}

    def tokens(self, prompt: dict, special: bool = True) -> list[int] | None:
        """Token ids of {text} or {messages}, with the model's special tokens or without; None: it cannot say."""
        return None

    def flush(self) -> bool:
        """False: this server has no door to empty its cache."""
        return False

    def complete(self, text: str, output_tokens: int) -> Reading:
        """What the server answers to a bare text, greedily."""
        answer = self._call("POST", self.path, self.body({"text": text}, output_tokens, {"temperature": 0}, False))
        if not answer.ok:
            self._object(answer)
        return self.read([0.0], [answer.content])

    def refused(self, status: int, message: str) -> str:
        """The sentence for a refusal."""
        if status in (401, 403):
            secret = f"the key in {self.key_file} is refused" if self.key_file else "it wants an API key, none is named"
            return f"{self.base_url} answers {status}: {secret} (endpoint.api_key_file)"
        return f"{self.base_url} answers {status}: {message}"

    def _call(self, method: str, path: str, body: dict | None = None) -> requests.Response:
        try:
            return requests.request(method, self.base_url + path, json=body, headers=self.headers, timeout=TIMEOUT_S)
        except requests.RequestException as error:
            raise GauntletError(f"{self.base_url}{path} does not answer: {error}") from error

    def _object(self, answer: requests.Response) -> dict:
        try:
            value = answer.json()
        except ValueError:
            value = {}
        if not answer.ok:
            raise GauntletError(self.refused(answer.status_code, message_of(value or answer.text)[0]))
        return value if isinstance(value, dict) else {"value": value}
