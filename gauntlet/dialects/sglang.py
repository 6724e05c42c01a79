"""SGLang's native /generate: token ids in, cumulative (or incremental) ids out, speculation in meta_info."""

import re
from collections.abc import Sequence

from gauntlet.dialects.reading import Reading, first_of, loads, message_of, totals
from gauntlet.dialects.server import Server
from gauntlet.errors import GauntletError
from gauntlet.stream import events

# a quote inside JSON text is escaped, so this matches the key only
COUNT = re.compile(rb'[,{]\s*"completion_tokens":\s*(\d+)')
VERIFY_STEPS = ("spec_verify_ct",)
ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts")
ACCEPTED_WITH_BONUS = ("spec_accept_token_num",)
DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
REQUIRED = ("prompt_tokens", "completion_tokens", "finish_reason")
FACTS = ("version", "max_total_num_tokens", "context_length", "speculative_algorithm", "attention_backend", "tp_size")


def speculation(meta: dict, reading: Reading) -> None:
    """Verify steps, drafted and accepted tokens of a last meta_info, whatever the release calls them."""
    reading.verify_steps = first_of(meta, VERIFY_STEPS)
    reading.drafted = first_of(meta, DRAFTED)
    reading.accepted = first_of(meta, ACCEPTED)
    reading.accept_histogram = first_of(meta, HISTOGRAM)
    if reading.accepted is None and (with_bonus := first_of(meta, ACCEPTED_WITH_BONUS)) is not None:
        reading.accepted = with_bonus - (reading.verify_steps or 0)


class SGLang(Server):
    """The native route. Raises GauntletError when the server cannot be asked what a measurement needs."""

    name = "sglang"
    path = "/generate"
    takes_ids = True
    COUNTERS = {
        "prompt_tokens": "sglang:prompt_tokens_total",
        "completion_tokens": "sglang:generation_tokens_total",
        "verify_steps": "sglang:spec_verify_calls_total",
        "requests": "sglang:num_requests_total",
    }

    def body(self, prompt: dict, output_tokens: int, sampling: dict, ignore_eos: bool) -> dict:
        """The request for a prompt of {ids} or {text}."""
        asked = {"max_new_tokens": output_tokens, "ignore_eos": ignore_eos, **sampling}
        seed = asked.pop("seed", None)
        if seed is not None and asked.get("temperature"):
            asked["sampling_seed"] = seed
        given = {"input_ids": prompt["ids"]} if prompt.get("ids") is not None else {"text": prompt["text"]}
        return {**given, "sampling_params": asked, "stream": True}

    @staticmethod
    def read(times: Sequence[float], pieces: Sequence[bytes]) -> Reading:
        """The answer. Only the last event is parsed whole: cumulative events grow with the square of the output."""
        reading, done, so_far, answers = Reading(), False, 0, []
        for event in events(times, pieces):
            if event.data == b"[DONE]":
                done = True
            elif event.field == "error" or event.data.startswith(b'{"error"'):
                if (value := loads(event.data, reading)) is not None:
                    reading.fail("server", *message_of(value))
            else:
                answers.append(event.data)
                counts = COUNT.findall(event.data)
                n = int(counts[-1]) if counts else None
                if n is not None and n > so_far:
                    reading.chunk(event.t, n)
                    so_far = n
        if answers and (last := loads(answers[-1], reading)) is not None:
            SGLang._last(last, answers, reading)
        return reading.close(done)

    @staticmethod
    def _last(last: dict, answers: list[bytes], reading: Reading) -> None:
        meta = last.get("meta_info")
        if not isinstance(meta, dict):
            reading.fail("fields_missing", f"the last event has no meta_info, only {', '.join(last)}")
            return
        reading.prompt_tokens = meta.get("prompt_tokens")
        reading.completion_tokens = meta.get("completion_tokens")
        reading.cached_tokens = meta.get("cached_tokens")
        reading.reasoning_tokens = meta.get("reasoning_tokens")
        reading.token_source = "meta_info" if reading.completion_tokens is not None else None
        finish = meta.get("finish_reason")
        kind = finish.get("type") if isinstance(finish, dict) else finish
        if kind == "abort":
            reading.fail("aborted", str(finish.get("message", "aborted")) if isinstance(finish, dict) else "aborted")
        reading.finish(kind)
        if kind and reading.error is None and (absent := [name for name in REQUIRED if meta.get(name) is None]):
            reading.fail("fields_missing", f"meta_info lacks {', '.join(absent)}; it has {', '.join(meta)}")
        speculation(meta, reading)
        reading.output_ids, reading.output_text = last.get("output_ids"), last.get("text") or ""
        ids = reading.output_ids
        if len(answers) > 1 and ids is not None and len(ids) < (reading.completion_tokens or 0):  # incremental output
            parts = [part for data in answers if (part := loads(data, reading)) is not None]
            reading.output_ids = [i for part in parts for i in part.get("output_ids") or []]
            reading.output_text = "".join(part.get("text") or "" for part in parts)

    @classmethod
    def counters(cls, text: str) -> dict[str, float]:
        return totals(text, cls.COUNTERS)

    def facts(self) -> dict:
        """Allow-listed facts of the server; `model` is the path that it serves."""
        model = self.json("/model_info", missing="/get_model_info")
        info = self.json("/server_info", missing="/get_server_info")
        states = info.get("internal_states") or [{}]
        found = {name: info.get(name) for name in FACTS if info.get(name) is not None}
        found["max_running_requests"] = first_of(states[0], ("effective_max_running_requests_per_dp",)) or info.get(
            "max_running_requests"
        )
        return {**found, "model": model.get("model_path") or info.get("model_path")}

    def flush(self) -> bool:
        """Empty the prefix cache (and the n-gram one). Raises GauntletError when the server refuses."""
        self.post("/flush_cache", {})
        return True

    def tokens(self, prompt: dict, special: bool = True) -> list[int] | None:
        """Token ids of {text} or {messages}; None when this release cannot say."""
        if "messages" in prompt:
            asked = {"messages": prompt["messages"]}
        else:
            asked = {"prompt": prompt["text"], "add_special_tokens": special}
        answer = self._call("POST", "/tokenize", {"model": "default", **asked})
        if answer.status_code == 500:
            raise GauntletError(
                f"{self.base_url}/tokenize answers 500: the usual cause is a tokenizer_config.json without "
                "model_max_length, whose default SGLang cannot write as JSON; put the model's context length there"
            )
        return None if answer.status_code in (400, 404, 422) else self._object(answer)["tokens"]
