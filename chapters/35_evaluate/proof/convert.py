#!/usr/bin/env python3
"""Makes a file of tasks of the samples that lm-eval writes with --log_samples.

    chapters/35_evaluate/proof/convert.py samples_arc_easy_2026.jsonl arc_easy.jsonl

What lm-eval has asked is in the file: contexts with their examples, and what was scored behind them. So
prompts need no templates. A delimiter is what all choices of a question begin with and the document's own
choices lack, if it has them; else a blank.
"""

import json
import sys
from pathlib import Path


def arguments(sample):
    """[context, continuation] of each request; the file has them as a list, or by names."""
    given = sample["arguments"]
    if isinstance(given, dict):
        return [[one[key] for key in sorted(one)] for _, one in sorted(given.items())]
    return given


def task(sample):
    asked, target = arguments(sample), sample["target"]
    if len(asked[0]) == 1:
        return {"text": asked[0][0]}
    context, behind = asked[0]
    if isinstance(behind, dict):  # what generation was told
        until = behind.get("until", [])
        return {"context": context, "target": str(target), "until": [until] if isinstance(until, str) else until,
                "max_tokens": int(behind.get("max_gen_toks", 256))}
    if len(asked) == 1:
        return {"context": context, "target": behind}
    if any(other != context for other, _ in asked):
        raise ValueError("a context for each choice; legal is one for all")
    texts = [text for _, text in asked]
    own = sample["doc"].get("choices")
    own = own.get("text") if isinstance(own, dict) else own
    ends = isinstance(own, list) and len(own) == len(texts) and all(t.endswith(str(c)) for t, c in zip(texts, own))
    delimiter = texts[0][: len(texts[0]) - len(own[0])] if ends else " " if all(t.startswith(" ") for t in texts) else ""
    return {"context": context, "choices": [text[len(delimiter):] for text in texts], "gold": int(target), "delimiter": delimiter}


def main(words):
    if len(words) != 2:
        print("convert.py: usage: convert.py SAMPLES.jsonl TASKS.jsonl", file=sys.stderr)
        return 2
    lines = []
    for number, line in enumerate(Path(words[0]).read_text(encoding="utf-8").splitlines(), 1):
        try:
            sample = json.loads(line)
            lines.append((int(sample.get("doc_id", number)), json.dumps(task(sample), ensure_ascii=False)))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            print(f"convert.py: {words[0]}: line {number} is no sample of lm-eval that ranks, matches, writes or rolls ({error})",
                  file=sys.stderr)
            return 2
    Path(words[1]).write_text("".join(text + "\n" for _, text in sorted(lines)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
