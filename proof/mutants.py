"""What is shown of a mutant, a variant and a story, and the table of mutants.

The proof itself needs checking too: a rule that could go without any obligation noticing would be no rule, or the
model would not see what it is there for.
"""

from __future__ import annotations

from dataclasses import dataclass

from proof.model import Model, Mutant, Run, Variant
from proof.obligations import Obligation, prove, task
from proof.runs import Found, breaks, replay


@dataclass(frozen=True)
class MutantVerdict:
    """`broken`: the named obligation has a counterexample. `harm`: the run to the violation, from the start.

    `spared`: with the rule in place the same run is impossible.
    """

    broken: bool
    harm: Found | None
    spared: bool

    @property
    def killed(self) -> bool:
        return self.broken and self.harm is not None and self.spared


def judge(model: Model, mutant: Mutant) -> MutantVerdict:
    """Break the named obligation, do the harm, and try the same with the rule in place."""
    without = model.with_rules(mutant.without)
    possible = all(name in model.possible for name in mutant.harm.names)
    return MutantVerdict(
        breaks(without, mutant.breaks, mutant.harm.sizes),
        replay(without, mutant.harm),
        not possible or replay(model, mutant.harm) is None,
    )


def prove_variant(model: Model, variant: Variant) -> list[Obligation]:
    """All obligations of the actions that the variant changes; those of the others are the model's own."""
    other = model.with_rules(variant.rules)
    return [each for action in model.altered(variant.rules) for each in prove(task(other, action))]


def tell(model: Model, story: Run) -> Found | None:
    """A run of the model itself, from the start to a state in which all invariants are true."""
    return replay(model, story)


def untold(model: Model) -> set[str]:
    """The actions that no story has: nothing shows that they can happen."""
    return set(model.possible) - {name for story in model.stories for name in story.names}
