"""Measure a trained guide: answers to held-out questions, what quantizing costs, and drafting.

    python -m tools.guide.evaluate RUN GUIDE.gguf --questions QUESTIONS.jsonl [--out TABLE.md]

RUN is the folder of training, GUIDE.gguf the file that `convert.py` wrote from it. Answers are
computed greedily in PyTorch, in float32, with the weights as trained; the weights of the file are
compared with them token by token, and `ask.py` asks the file itself. The rules that judge answers
are `evaluate_rules.py`'s. No question is printed.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

from tools.guide import evaluate_rules as rules
from tools.guide import vocabulary
from tools.guide.convert import checkpoint_arrays
from tools.guide.model import Guide, Sizes
from tools.guide.write_data import write_chats

LONGEST = 160
"""Tokens after which an answer counts as not ended; the longest trained one has fewer."""

BATCH = 64


@dataclass(frozen=True)
class Answer:
    """What was said, whether it ended by itself, and all ids with the place where it begins."""

    text: str
    ended: bool
    ids: list[int]
    start: int


@dataclass(frozen=True)
class Loaded:
    """A guide to be asked."""

    guide: Guide
    tokenizer: Any


def load(run: Path, file: Path | None = None) -> Loaded:
    """A guide as trained, or with the weights of a GGUF file made from it."""
    config = json.loads((run / "config.json").read_text("utf-8"))
    tokenizer = Tokenizer.from_file(str(run / "tokenizer.json"))
    sizes = Sizes(
        layers=config["num_hidden_layers"],
        experts=config["num_experts"],
        used=config["num_experts_per_tok"],
        key_heads=config["linear_num_key_heads"],
        value_heads=config["linear_num_value_heads"],
    )
    if file is None:
        with np.load(run / "weights.npz") as stored:
            arrays = dict(stored)
    else:
        arrays = checkpoint_arrays(file, config)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    guide = Guide(sizes, config["vocab_size"], "eager").to(device).eval()
    guide.load_arrays(arrays)
    return Loaded(guide, tokenizer)


@torch.no_grad()  # type: ignore[untyped-decorator]  # torch has no types here
def answers(loaded: Loaded, questions: Sequence[str]) -> list[Answer]:
    """The greedy answer to each question, each from a fresh start."""
    found: list[Answer] = []
    for start in range(0, len(questions), BATCH):
        prompts = [
            vocabulary.prompt(loaded.tokenizer, text) for text in questions[start : start + BATCH]
        ]
        found += _answer_together(loaded, prompts)
    return found


def _answer_together(loaded: Loaded, prompts: list[list[int]]) -> Iterator[Answer]:
    """Rows of different length are padded behind: what follows a token never reaches it."""
    rows = [list(prompt) for prompt in prompts]
    running = list(range(len(rows)))
    for _ in range(LONGEST):
        if not running:
            break
        ids = _padded([rows[i] for i in running])
        places = torch.tensor([len(rows[i]) - 1 for i in running])
        logits = loaded.guide(ids.to(_device(loaded))).logits
        chosen = logits[torch.arange(len(running)), places].argmax(-1).tolist()
        for row, token in zip(running, chosen, strict=True):
            rows[row].append(token)
        running = [i for i in running if rows[i][-1] not in _ENDS]
    for prompt, whole in zip(prompts, rows, strict=True):
        said = whole[len(prompt) :]
        ended = said[-1] in _ENDS
        text = loaded.tokenizer.decode(said[:-1] if ended else said)
        yield Answer(text.strip(), ended, whole, len(prompt))


_ENDS = (vocabulary.TURN_END, vocabulary.END_OF_TEXT)


def _device(loaded: Loaded) -> Any:
    return next(loaded.guide.parameters()).device


def _padded(rows: Sequence[Sequence[int]]) -> Any:
    longest = max(map(len, rows))
    filled = [[*row, *[vocabulary.END_OF_TEXT] * (longest - len(row))] for row in rows]
    return torch.tensor(filled)


@dataclass(frozen=True)
class Agreement:
    """Shares over the answers' tokens: the same best token, and drafts that would be accepted."""

    top_1: float
    accepted: float
    tokens: int


@torch.no_grad()  # type: ignore[untyped-decorator]  # torch has no types here
def agreement(trained: Loaded, quantized: Loaded, said: Sequence[Answer]) -> Agreement:
    """Compare two guides on the questions and the first one's answers, token by token.

    A draft is accepted when it is the trunk's best token for that place; it is made by the
    quantized guide's draft block, from its own trunk.
    """
    same = accepted = total = drafted = 0
    for at in range(0, len(said), BATCH):
        together = said[at : at + BATCH]
        ids = _padded([answer.ids for answer in together]).to(_device(trained))
        best = trained.guide(ids).logits.argmax(-1)
        outputs = quantized.guide(ids)
        other, draft = outputs.logits.argmax(-1), outputs.drafted.argmax(-1)
        for row, answer in enumerate(together):
            first, end = answer.start - 1, len(answer.ids) - 1
            same += int((best[row, first:end] == other[row, first:end]).sum())
            total += end - first
            # Row t of the draft block guesses what row t of the trunk will say: token t + 1.
            right = draft[row, first + 1 : end] == other[row, first + 1 : end]
            accepted += int(right.sum())
            drafted += len(right)
    return Agreement(same / max(total, 1), accepted / max(drafted, 1), total)


# -- how near held-out questions are to trained ones --------------------------------------------


def grams(text: str) -> frozenset[str]:
    """Words, and three letters in a row, of a text in lower case."""
    plain = " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())
    return frozenset({*plain.split(), *(plain[i : i + 3] for i in range(len(plain) - 2))})


class Neighbours:
    """Finds how like the nearest trained question is (Jaccard of `grams`, 1: the same set)."""

    def __init__(self, questions: Sequence[str]) -> None:
        sets = list({grams(question) for question in questions})
        self._sizes = np.array([len(own) for own in sets])
        places: dict[str, list[int]] = {}
        for number, own in enumerate(sets):
            for gram in own:
                places.setdefault(gram, []).append(number)
        self._places = {gram: np.array(numbers) for gram, numbers in places.items()}

    def nearest(self, question: str) -> float:
        """The largest likeness of a question to any trained one."""
        own = grams(question)
        shared = np.zeros(len(self._sizes), np.int64)
        for gram in own:
            if gram in self._places:
                shared[self._places[gram]] += 1
        return float((shared / (self._sizes + len(own) - shared)).max())


def overlap(questions: Sequence[str], trained: Sequence[str]) -> npt.NDArray[np.float64]:
    """For each question how like its nearest trained one is."""
    neighbours = Neighbours(trained)
    return np.array([neighbours.nearest(question) for question in questions])


# -- the table ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeldOut:
    """Questions with their rules, the questions about something else, and the honest phrases."""

    questions: Sequence[rules.Question]
    off_topic: Sequence[rules.OffTopic]
    markers: Sequence[str]

    @property
    def texts(self) -> list[str]:
        """All questions, those about the program first."""
        about = [entry.question for entry in self.questions]
        return about + [entry.question for entry in self.off_topic]


@dataclass(frozen=True)
class Score:
    """Shares of right, honest and ended answers."""

    right: float
    honest: float
    ended: float

    @classmethod
    def of(cls, held_out: HeldOut, said: Sequence[Answer]) -> "Score":
        """Judge the answers to `held_out.texts`."""
        count = len(held_out.questions)
        about = zip(said[:count], held_out.questions, strict=True)
        right = [rules.judge(answer.text, entry.rule) for answer, entry in about]
        honest = [rules.is_honest(answer.text, held_out.markers) for answer in said[count:]]
        ended = [answer.ended for answer in said]
        return cls(*(float(np.mean(each)) for each in (right, honest, ended)))


def _score_rows(held_out: HeldOut, score: Score, name: str) -> list[tuple[str, str]]:
    about, strange = len(held_out.questions), len(held_out.off_topic)
    return [
        (f"right, of {about} held-out questions ({name})", f"{score.right:.1%}"),
        (f"honest, of {strange} off-topic ones ({name})", f"{score.honest:.1%}"),
        (f"answers that end by themselves ({name})", f"{score.ended:.1%}"),
    ]


def _likeness_rows(held_out: HeldOut, chats: int, seed: int) -> list[tuple[str, str]]:
    written = write_chats(chats, seed)
    trained_on = [text for chat in written for role, text in chat if role == "user"]
    like = overlap([entry.question for entry in held_out.questions], trained_on)
    figures = (
        ("median", np.median(like)),
        ("nine of ten below", np.quantile(like, 0.9)),
        ("largest", like.max()),
    )
    told = f"{int((like == 1).sum())}"
    return [
        *((f"likeness to the nearest trained question, {name}", f"{x:.2f}") for name, x in figures),
        ("held-out questions that are, but for their order, a trained one", told),
    ]


def table(held_out: HeldOut, run: Path, trained: Loaded, quantized: Loaded) -> str:
    """All figures as a Markdown table, with the versions that computed them."""
    said = answers(trained, held_out.texts)
    told = json.loads((run / "training.json").read_text("utf-8"))
    same = agreement(trained, quantized, said)
    rows = _score_rows(held_out, Score.of(held_out, said), "as trained")
    rows.append((f"same best token, bundled and trained, of {same.tokens:,}", f"{same.top_1:.2%}"))
    rows.append(("one drafted token accepted", f"{same.accepted:.1%}"))
    rows += _likeness_rows(held_out, told["chats"], told["seed"])
    rows += [
        ("weights", f"{told['weights']:,}"),
        ("training", f"{told['steps']:,} steps, {told['tokens']:,} tokens, {told['seconds']} s"),
        ("computed by", ", ".join(f"{k} {v}" for k, v in told["versions"].items())),
    ]
    return "\n".join(("| What | Measured |", "|---|---:|", *(f"| {a} | {b} |" for a, b in rows)))


# -- the command --------------------------------------------------------------------------------


def sample_lines(loaded: Loaded, path: Path) -> Iterator[str]:
    """Questions of a text file with their answers, to be read by a person."""
    questions = path.read_text("utf-8").splitlines()
    for question, answer in zip(questions, answers(loaded, questions), strict=True):
        yield f"? {question}\n  {answer.text}{'' if answer.ended else ' [not ended]'}"


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--held-out", action="store_true", help="ask the held-out questions")
    parser.add_argument("--samples", type=Path, help="questions, a line each, to be printed")
    parser.add_argument("--out", type=Path, help="file for the table")
    given = parser.parse_args()
    trained, quantized = load(given.run), load(given.run, given.file)
    if given.samples:
        print("\n".join(sample_lines(quantized, given.samples)), flush=True)
    if given.held_out:
        held_out = HeldOut(rules.load_questions(), rules.load_offtopic(), rules.load_markers())
        text = table(held_out, given.run, trained, quantized)
        print(text)
        if given.out:
            given.out.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
