"""Ask a guide's file the held-out questions through this program's own engine; needs no PyTorch.

    python -m tools.guide.ask GUIDE.gguf

Greedy answers on the host backend, each from a fresh start; prints shares and speed, no question.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stratadesk import paths
from stratadesk.engine.commands import Device, EngineSettings
from stratadesk.kernels.host import compile_cache
from tools.guide import evaluate_rules as rules
from tools.guide import vocabulary

LONGEST, CONTEXT = 160, 512
ENDS = (vocabulary.TURN_END, vocabulary.END_OF_TEXT)


def ids_of_answer(model: Any, prompt: Sequence[int]) -> Iterator[int]:
    """The greedy answer's ids, the end token included if it comes."""
    state = model.new_state()
    logits = model.forward(state, prompt, logits="last")
    for _ in range(LONGEST):
        token = int(logits.reshape(-1).argmax())
        yield token
        if token in ENDS:
            return
        logits = model.forward(state, [token], logits="last")


def main() -> None:
    """Ask, judge and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    compile_cache.configure(paths.folders().cache)
    from stratadesk.engine.loading import load_model

    settings = EngineSettings(device=Device.HOST, max_context=CONTEXT)
    model = load_model(given.file, settings, lambda _event: None)
    tokenizer = vocabulary.from_gguf(given.file)
    questions, strange = rules.load_questions(), rules.load_offtopic()
    markers = rules.load_markers()
    began, count, ended = time.monotonic(), 0, 0
    texts: list[str] = []
    asked = [entry.question for entry in questions] + [entry.question for entry in strange]
    for question in asked:
        ids = list(ids_of_answer(model, vocabulary.prompt(tokenizer, question)))
        count, ended = count + len(ids), ended + (ids[-1] in ENDS)
        texts.append(tokenizer.decode([token for token in ids if token not in ENDS]))
    right = sum(
        rules.judge(text, entry.rule)
        for text, entry in zip(texts[: len(questions)], questions, strict=True)
    )
    honest = sum(rules.is_honest(text, markers) for text in texts[len(questions) :])
    print(
        f"right {right} of {len(questions)}, honest {honest} of {len(strange)}, "
        f"ended {ended} of {len(asked)}; {count / (time.monotonic() - began):.0f} tokens/s"
    )


if __name__ == "__main__":
    main()
