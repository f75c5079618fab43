"""An exported model that nobody had to train: each label has the mean brightness as its score."""

from __future__ import annotations

from collections.abc import Sequence

from kmcl.evaluation.label_rules import LabelRules
from kmcl.serving.export_metadata import METADATA_KEY, ExportMetadata

SIDE = 8


def brightness_model(
    labels: Sequence[str] = ("bright",), *, unfamiliarity: bool = False, summary: bool = False
) -> bytes:
    """The content of an .onnx file, as `kmcl export` writes it.

    unfamiliarity: with that output, which is 0.5 at a brightness of 0
    summary:       with a feature summary of two numbers, both the brightness
    """
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Cast", ["images"], ["values"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["values"], ["mean"], axes=[1, 2], keepdims=0),
        helper.make_node("ReduceMean", ["mean"], ["one"], axes=[1], keepdims=1),
        helper.make_node("Concat", ["one"] * len(labels), ["score"], axis=1),
        helper.make_node("Sigmoid", ["score"], ["probability"]),
        helper.make_node("ReduceMean", ["probability"], ["unfamiliarity"], axes=[1], keepdims=0),
        helper.make_node("Concat", ["one", "one"], ["feature_summary"], axis=1),
    ]
    images = helper.make_tensor_value_info("images", TensorProto.UINT8, ["batch", 3, SIDE, SIDE])
    shapes: dict[str, list[str | int]] = {
        "score": ["batch", len(labels)],
        "probability": ["batch", len(labels)],
        "unfamiliarity": ["batch"],
        "feature_summary": ["batch", 2],
    }
    wanted = {"unfamiliarity": unfamiliarity, "feature_summary": summary}
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
        if wanted.get(name, True)
    ]
    kept = [node for node in nodes if wanted.get(node.output[0], True)]
    model = helper.make_model(
        helper.make_graph(kept, "brightness", [images], outputs),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    metadata = ExportMetadata(LabelRules(tuple(labels)), SIDE, (0.0,) * 3, (1.0,) * 3, "bce", "none")
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA_KEY, metadata.to_json()
    return model.SerializeToString()
