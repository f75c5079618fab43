"""The Python reference: a directive for every public name, so that none can be forgotten."""

from __future__ import annotations

import inspect
from importlib import import_module
from itertools import chain

MORE_PUBLIC_NAMES = {
    "kmcl.models": [
        "kmcl.models.encoder.Encoder",
        "kmcl.models.encoder.EncoderFeatures",
        "kmcl.models.classifier.Classifier",
        "kmcl.models.classifier.HeadOutput",
        "kmcl.models.complexity.measure_complexity",
        "kmcl.models.complexity.Complexity",
        "kmcl.models.complexity.published_counterpart",
        "kmcl.models.complexity.PublishedComplexity",
    ],
    "kmcl.data": ["kmcl.data.partners.partner_order"],
    "kmcl.training": [
        "kmcl.training.settings.TrainingSettings",
        "kmcl.training.settings.resolve_settings",
        "kmcl.training.train.train",
        "kmcl.training.train.resume",
        "kmcl.training.run_folder.RunFolder",
    ],
    "kmcl.evaluation": [
        "kmcl.evaluation.predictions.Predictions",
        "kmcl.evaluation.metrics.evaluate",
        "kmcl.evaluation.metrics.Evaluation",
        "kmcl.evaluation.metrics.LabelMetrics",
        "kmcl.evaluation.decisions.DecisionMetrics",
        "kmcl.evaluation.image_ranking.ImageRanking",
        "kmcl.evaluation.frequency.FrequencyGroup",
        "kmcl.evaluation.ranking.mean_average_precision",
        "kmcl.evaluation.thresholds.choose_thresholds",
        "kmcl.evaluation.thresholds.LabelThresholds",
        "kmcl.evaluation.bootstrap.bootstrap_map",
        "kmcl.evaluation.bootstrap.BootstrapInterval",
        "kmcl.evaluation.bootstrap.compare_map",
        "kmcl.evaluation.bootstrap.PairedDifference",
    ],
    "kmcl.studies": [
        "kmcl.studies.variants.parse_variants",
        "kmcl.studies.plan.make_plan",
        "kmcl.studies.equal_search.parse_search",
        "kmcl.studies.study.run_study",
        "kmcl.studies.command.command_of",
        "kmcl.studies.variants.Variant",
        "kmcl.studies.plan.StudyPlan",
        "kmcl.studies.equal_search.EqualSearch",
        "kmcl.studies.plan.Member",
        "kmcl.studies.results.StudyResult",
        "kmcl.studies.results.VariantResult",
        "kmcl.studies.results.Spread",
    ],
    "kmcl.serving": [
        "kmcl.serving.image_predictor.BatchScores",
        "kmcl.serving.export.export_model",
        "kmcl.serving.export.Exported",
    ],
}
"""Names worth a place in the reference that their package does not import for everybody."""


def public_names(package: str) -> list[str]:
    """Dotted names: what the package exports, and what else the reference shows of it."""
    exported = [f"{package}.{name}" for name in getattr(import_module(package), "__all__", [])]
    return [name for name in exported if not name.endswith("__")] + MORE_PUBLIC_NAMES.get(package, [])


def shortcuts() -> str:
    """Markdown: the names of `kmcl` itself, with the packages that describe them."""
    import kmcl

    rows = ["| name | also as | what |", "|---|---|---|"]
    for name in public_names("kmcl"):
        short = name.rpartition(".")[2]
        home = kmcl._HOMES.get(short, "kmcl.errors")
        summary = (inspect.getdoc(getattr(kmcl, short)) or "").partition("\n")[0]
        rows.append(f"| `{name}` | `{home}.{short}` | {summary} |")
    return "\n".join(rows)


def reference(package: str) -> str:
    """Markdown with a directive of autodoc for each public name."""
    directives: dict[str, list[str]] = {"autofunction": [], "autoclass": [], "autodata": []}
    for name in public_names(package):
        module, _, attribute = name.rpartition(".")
        value = getattr(import_module(module), attribute)
        if inspect.isclass(value):
            kind, options = "autoclass", ["   :members:"]
        elif callable(value):
            kind, options = "autofunction", []
        else:
            kind, options = "autodata", ["   :no-value:"] if isinstance(value, dict) else []
        directives[kind].append("\n".join([f".. {kind}:: {name}", *options]))
    return "```{eval-rst}\n" + "\n\n".join(chain.from_iterable(directives.values())) + "\n```"
