"""/v1/completions and /v1/chat/completions of any server, with the extensions of SGLang and llama.cpp where present."""

from collections.abc import Sequence

from gauntlet.dialects.llamacpp import LlamaCpp
from gauntlet.dialects.reading import Reading, first_of, loads, message_of
from gauntlet.dialects.server import Server
from gauntlet.dialects.sglang import SGLang, speculation
from gauntlet.stream import events


class OpenAI(Server):
    """The route that every server has. Prompts go as text or messages; the server counts."""

    name = "openai"
    takes_ids = False

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    def body(self, prompt: dict, output_tokens: int, sampling: dict, ignore_eos: bool) -> dict:
        """The request for a prompt of {messages} or {text}; usage with every chunk where the server can."""
        given = {"messages": prompt["messages"]} if self.chat else {"prompt": prompt["text"]}
        usage = {"include_usage": True, "continuous_usage_stats": True}
        extra = {"ignore_eos": True} if ignore_eos else {}
        return {
            "model": self.model or "default",
            **given,
            "max_tokens": output_tokens,
            **sampling,
            **extra,
            "stream": True,
            "stream_options": usage,
            "return_spec_tokens_details": True,
        }

    @classmethod
    def counters(cls, text: str) -> dict[str, float]:
        """Those of whichever engine stands behind the route."""
        return SGLang.counters(text) or LlamaCpp.counters(text)

    def flush(self) -> bool:
        """Whether the server has SGLang's door to empty its cache."""
        return self._call("POST", "/flush_cache", {}).ok

    @staticmethod
    def read(times: Sequence[float], pieces: Sequence[bytes]) -> Reading:
        """The answer: content and reasoning are tokens; role-only, empty and null are not."""
        reading, done, usage = Reading(), False, {}
        for event in events(times, pieces):
            if event.data == b"[DONE]":
                done = True
                continue
            value = loads(event.data, reading)
            if value is None:
                continue
            if event.field == "error" or value.get("error"):
                reading.fail("server", *message_of(value))
                continue
            now = value.get("usage") or {}
            usage = now or usage
            for choice in value.get("choices") or []:
                OpenAI._choice(choice, event.t, now.get("completion_tokens"), reading)
            if "timings" in value or "sglext" in value:
                OpenAI._extensions(value, reading)
        OpenAI._usage(usage, reading)
        if reading.n and reading.n[-1] is None and len(reading.n) == 1:
            reading.n[-1] = reading.completion_tokens
        return reading.close(done)

    @staticmethod
    def _choice(choice: dict, t: float, so_far: int | None, reading: Reading) -> None:
        delta = choice.get("delta")
        if delta is None:
            piece = choice.get("text") or ""
        else:
            piece = (first_of(delta, ("reasoning_content", "reasoning")) or "") + (delta.get("content") or "")
        said = reading.output_text
        if len(reading.t) > 1 and len(piece) > len(said) and piece.startswith(said):
            reading.odd("text_repeated")  # the text so far instead of the new part
            piece = piece[len(said) :]
        grown = so_far is not None and so_far > (reading.n[-1] or 0 if reading.n else 0)
        if piece or grown:
            reading.chunk(t, so_far)
            reading.output_text += piece
        reading.finish(choice.get("finish_reason"))
        if isinstance(choice.get("meta_info"), dict):
            speculation(choice["meta_info"], reading)

    @staticmethod
    def _usage(usage: dict, reading: Reading) -> None:
        """The last usage that was told, which is the whole answer's."""
        if not usage:
            return
        reading.prompt_tokens = first_of(usage, ("prompt_tokens",))
        reading.completion_tokens = first_of(usage, ("completion_tokens",))
        reading.cached_tokens = first_of(usage.get("prompt_tokens_details") or {}, ("cached_tokens",))
        details = usage.get("completion_tokens_details") or {}
        reading.reasoning_tokens = first_of({**usage, **details}, ("reasoning_tokens",))
        reading.token_source = "usage"

    @staticmethod
    def _extensions(value: dict, reading: Reading) -> None:
        """llama.cpp's timings, which count where usage is missing, and SGLang's details of speculation."""
        if timings := value.get("timings"):
            reading.prompt_tokens = timings.get("prompt_n", 0) + timings.get("cache_n", 0)
            reading.completion_tokens, reading.token_source = timings.get("predicted_n"), "timings"
            reading.drafted, reading.accepted = timings.get("draft_n"), timings.get("draft_n_accepted")
        if details := (value.get("sglext") or {}).get("spec_tokens_details"):
            speculation(details[0] if isinstance(details, list) else details, reading)
