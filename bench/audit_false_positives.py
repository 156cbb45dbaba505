"""How often an audit accuses a clean server: many audits of one whose answers are prose of this repository.

`python bench/audit_false_positives.py [ANSWERS]`, 10,000 by default: one line for each check, and the bound.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path

from quiesce.audit.endpoint import Keys
from quiesce.audit.options import Options
from quiesce.audit.report import Report
from quiesce.audit.session import audit
from quiesce.audit.verdict import Status

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.audit.fake_openai import FakeOpenAI, Faults, serving  # noqa: E402 - tests are no package that is installed

PROSE = re.findall(r"\S+", " ".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("docs/**/*.md"))))
ANSWER_TOKENS = 64
BENIGN = 29
"""Each 29th answer differs in its last word, as where arithmetic depends on the batch."""


def prose(fake: FakeOpenAI, prompt: str, own: list[str], max_tokens: int) -> list[str]:
    """A passage, the same for the same prompt, but for the benign differences."""
    fake.answered += 1
    draw = random.Random(hashlib.sha256(prompt.encode()).digest())
    first = draw.randrange(len(PROSE) - max_tokens)
    words = PROSE[first : first + max_tokens]
    return [*words[:-1], "otherwise"] if fake.answered % BENIGN == 0 else words


async def one(url: str, seed: int) -> Report:
    options = Options(
        seed=seed, victims=48, answer_tokens=ANSWER_TOKENS, donor_tokens=100, victim_tokens=60, pause_s=0.0
    )
    return await audit(url, Keys(), options, lambda stage, done, total: None)


async def main(wanted: int) -> int:
    FakeOpenAI._answer = prose  # type: ignore[method-assign, assignment]
    answers = letters = audits = 0
    bound, found, began_s = 0.0, Counter[str](), time.monotonic()
    async with serving(Faults()) as (_, url):
        while answers < wanted:
            verdict = (await one(url, seed=audits)).verdict
            audits += 1
            answers += next(check.rate.trials for check in verdict.checks if check.name == "markers" and check.rate)
            letters += verdict.letters
            bound += verdict.false_positives
            found.update(check.name for check in verdict.checks if check.status is Status.SUSPECTED)
    print(f"{answers} clean answers, {letters} letters, in {audits} audits, {time.monotonic() - began_s:.0f} s")
    print(f"audits that accused: {dict(found) or 'none'}; by markers the bound for any at all was {bound:.2g}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)))
