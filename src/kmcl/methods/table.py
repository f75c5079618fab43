"""The table of methods. A new one is a file with a head and a loss, and an entry here."""

from __future__ import annotations

from kmcl.data.word import suggest
from kmcl.errors import InputError
from kmcl.methods.dual_relation import DualRelationHead, tdrg_loss
from kmcl.methods.dynamic_graph import DynamicGraphHead
from kmcl.methods.graph_classifier import GraphClassifierHead
from kmcl.methods.group_decoder import GroupDecoderHead
from kmcl.methods.interface import Method
from kmcl.methods.kernel_mixture import KernelMixtureMethodHead, kmcl_loss
from kmcl.methods.label_contrast import ProjectedHead, mulsupcon_loss
from kmcl.methods.label_queries import LabelQueriesHead
from kmcl.methods.linear import LinearHead, asl_loss, bce_loss, focal_loss
from kmcl.methods.residual_attention import ResidualAttentionHead

METHODS = {
    "kmcl": Method("kernel mixture, with the three terms of the paper", KernelMixtureMethodHead, kmcl_loss),
    "asl": Method("linear head, asymmetric loss", LinearHead, asl_loss),
    "bce": Method("linear head, binary cross-entropy", LinearHead, bce_loss),
    "focal": Method("linear head, focal loss", LinearHead, focal_loss),
    "csra": Method("residual attention of each label over positions", ResidualAttentionHead, asl_loss),
    "mldecoder": Method("ML-Decoder: queries that each score a group of labels", GroupDecoderHead, asl_loss),
    "mulsupcon": Method("linear head, embeddings contrasted label by label", ProjectedHead, mulsupcon_loss),
    "q2l": Method("Query2Label: a query for each label", LabelQueriesHead, asl_loss),
    "mlgcn": Method("ML-GCN: classifiers from a graph of the labels", GraphClassifierHead, asl_loss),
    "addgcn": Method("ADD-GCN: a graph of the labels for each image", DynamicGraphHead, asl_loss),
    "tdrg": Method("TDRG: attention over scales and a graph of the labels", DualRelationHead, tdrg_loss),
}


def find_method(name: str) -> Method:
    """The method called `name`."""
    if name not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}; got {name!r}{suggest(name, METHODS)}")
    return METHODS[name]
