"""The results of a study in the terminal, in 80 columns; table.md has every metric."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from kmcl.durations import spell_duration
from kmcl.studies.results import StudyResult, difference_text, in_words, spread_text
from kmcl.studies.variants import OF_TERMS, WITHOUT_PARTS
from kmcl.studies.weight_search import WeightResult


def print_study(console: Console, result: StudyResult | WeightResult) -> None:
    """One row per variant: mAP, its difference to the reference, val mAP and time of training."""
    if isinstance(result, WeightResult):
        console.print(result.table, soft_wrap=True, highlight=False, markup=False)
        return
    for line in in_words(result):
        console.print(line, highlight=False, markup=False)
    compared = any(variant.difference for variant in result.variants)
    table = Table(padding=(0, 1))
    table.add_column("method", overflow="fold")
    names = [f"{result.split} mAP"]
    names += ["difference (95 % interval)", "seeds ahead"] if compared else []
    for name in [*names, "val mAP", "training"]:
        table.add_column(name, justify="right")
    for variant in result.variants:
        cells = [spread_text(variant.metrics["mAP"])]
        if compared:
            ahead = f"{variant.seeds_ahead} of {len(variant.shared_seeds)}" if variant.difference else ""
            cells += [difference_text(variant.difference), ahead]
        of_val = spread_text(variant.metrics["val mAP"])
        table.add_row(variant.name, *cells, of_val, spell_duration(variant.training_seconds.mean))
    console.print(table)
    if result.kind == OF_TERMS:
        console.print(WITHOUT_PARTS, highlight=False, markup=False)
    written = "table.md, table.csv, results.json and figures"
    console.print(f"results: {result.folder}/{written}", soft_wrap=True)
