"""llama.cpp's native /completion: token ids in and out, `timings` with every token."""

from collections.abc import Sequence

from gauntlet.dialects.reading import Reading, loads, message_of, totals
from gauntlet.dialects.server import Server
from gauntlet.stream import events

FINISH = {"eos": "stop", "word": "stop", "limit": "length"}


class LlamaCpp(Server):
    """The native route; the cache is off for every request that does not continue a conversation."""

    name = "llamacpp"
    path = "/completion"
    takes_ids = True
    COUNTERS = {
        "prompt_tokens": "llamacpp:prompt_tokens_total",
        "cached_tokens": "llamacpp:prompt_tokens_cached_total",
        "completion_tokens": "llamacpp:tokens_predicted_total",
        "drafted": "llamacpp:spec_decode_num_draft_tokens_total",
        "accepted": "llamacpp:spec_decode_num_accepted_tokens_total",
    }

    def body(self, prompt: dict, output_tokens: int, sampling: dict, ignore_eos: bool) -> dict:
        """The request for a prompt of {ids} or {text}; `warm`: the conversation's cache may be used."""
        return {
            "prompt": prompt["ids"] if prompt.get("ids") is not None else prompt["text"],
            "n_predict": output_tokens,
            "ignore_eos": ignore_eos,
            **sampling,
            "stream": True,
            "return_tokens": True,
            "timings_per_token": True,
            "cache_prompt": bool(prompt.get("warm")),
        }

    @staticmethod
    def read(times: Sequence[float], pieces: Sequence[bytes]) -> Reading:
        """The answer. Each token is an event of its own; the events of one verify step make one chunk."""
        reading, done, ids, text, arrived, accepted = Reading(), False, [], [], [], []
        for event in events(times, pieces):
            if event.data == b"[DONE]":
                continue
            value = loads(event.data, reading)
            if value is None:
                continue
            if event.field == "error" or "error" in value:
                reading.fail("server", *message_of(value))
                continue
            text.append(value.get("content") or "")
            new = value.get("tokens") or []
            ids += new
            so_far, timings = value.get("tokens_predicted"), value.get("timings") or {}
            if not value.get("stop"):
                if new or value.get("content"):
                    arrived.append(event.t)
                    accepted.append(timings.get("draft_n_accepted", 0))
                continue
            done = True
            reading.completion_tokens, reading.token_source = so_far, "timings" if so_far is not None else None
            reading.prompt_tokens, reading.cached_tokens = value.get("tokens_evaluated"), timings.get("cache_n")
            reading.drafted, reading.accepted = timings.get("draft_n"), timings.get("draft_n_accepted")
            reading.finish(FINISH.get(value.get("stop_type"), value.get("stop_type")))
        reading.output_ids, reading.output_text = ids or None, "".join(text)
        ends = step_ends(accepted)
        for end in ends:
            reading.chunk(arrived[end - 1], end)
        reading.close(done)
        if reading.error is None and ends:
            reading.verify_steps = len(ends) - 1
        return reading

    @classmethod
    def counters(cls, text: str) -> dict[str, float]:
        """prompt_tokens includes the cached ones, as everywhere else; llama.cpp counts them apart."""
        found = totals(text, cls.COUNTERS)
        if "prompt_tokens" in found:
            found["prompt_tokens"] += found.get("cached_tokens", 0)
        return found

    def facts(self) -> dict:
        props = self.json("/props")
        settings = props.get("default_generation_settings") or {}
        return {
            "version": props.get("build_info"),
            "model": props.get("model_path"),
            "context_length": settings.get("n_ctx"),
            "max_running_requests": props.get("total_slots"),
        }

    def flush(self) -> bool:
        """True: every request is told not to use the cache, so there is nothing to empty."""
        return True

    def tokens(self, prompt: dict, special: bool = True) -> list[int]:
        """Token ids of {text} or {messages} (through the server's chat template)."""
        if "messages" in prompt:
            text = self.post("/apply-template", {"messages": prompt["messages"]})["prompt"]
        else:
            text = prompt["text"]
        return self.post("/tokenize", {"content": text, "add_special": special, "parse_special": special})["tokens"]


def step_ends(accepted: Sequence[int]) -> list[int]:
    """Output tokens so far at the end of the prefill and of each decode step.

    `accepted[i]` is the count of accepted drafts that came with output token i (0 is the prefill's). A step yields
    1 + (newly accepted) tokens and tells its count with the first of them; the last one may be cut by a stop.
    """
    ends = [1] if accepted else []
    while ends and ends[-1] < len(accepted):
        first = ends[-1]
        ends.append(min(len(accepted), first + 1 + accepted[first] - accepted[first - 1]))
    return ends
