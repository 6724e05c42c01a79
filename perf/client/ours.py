"""Gauntlet's client as a program: prompts from a file, records into a file."""

import json
import sys

from gauntlet import client, dialects, timing
from gauntlet.cell import rows


def main(url: str, prompts: str, tokens: int, concurrency: int, out: str) -> None:
    dialect = dialects.get("openai")(url)
    with open(prompts) as file:
        texts = [json.loads(line)["text"] for line in file]
    asked = [
        [client.Ask(json.dumps(dialect.body({"text": text}, tokens, {"temperature": 0}, True)).encode(), {})]
        for text in texts
    ]
    window = client.closed_loop(dialect, asked, concurrency)
    records, chunks = rows(window)
    figures = timing.summary(records, chunks, window.end - window.start, speculates=False)
    said = {
        record["prompt_tokens"]: {
            "ttft_s": record["first"] - record["sent"],
            "tpot_s": timing.tpot_s(record),
            "tokens": record["completion_tokens"],
        }
        for record in records
        if record["error"] is None
    }
    with open(out, "w") as file:
        json.dump({"said": said, "speed": figures["tokens_per_s"]}, file)


if __name__ == "__main__":
    url, prompts, tokens, concurrency, out = sys.argv[1:]
    main(url, prompts, int(tokens), int(concurrency), out)
