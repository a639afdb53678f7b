"""The scenarios of the runners of drafts, and of UNO's, as :mod:`scenarios` has them."""

from __future__ import annotations

from pathlib import Path

from support import drafts, plugin


def draft_extend(folder: Path) -> None:
    with plugin.engine(folder / "spool"):
        drafts.draft_extend((1, 2, 4), width=4)


def multi_layer(folder: Path) -> None:
    """A draft with a layer, a runner and a graph for each step."""
    with plugin.engine(folder / "spool"):
        drafts.multi_layer((1, 2, 4), width=4, one_graph=False)


def multi_layer_in_one_graph(folder: Path) -> None:
    """The same with all steps in one graph, which the owner of the runners captures by itself."""
    with plugin.engine(folder / "spool"):
        drafts.multi_layer((1, 2, 4), width=4, one_graph=True)


def frozen_kv(folder: Path) -> None:
    with plugin.engine(folder / "spool"):
        drafts.frozen_kv((1, 2, 4), topk=2)


def uno(folder: Path) -> list[int]:
    """Linear: draft and verify are one runner's two variants."""
    owner = drafts.owner_of_uno()
    with plugin.engine(folder / "spool"):
        drafts.uno((1, 2, 4), owner=owner, width=3)
    return owner.lora_manager.drafts


def uno_tree(folder: Path) -> list[int]:
    """A tree: the target's runner, then the draft's, which are of one class and one model runner."""
    owner = drafts.owner_of_uno()
    with plugin.engine(folder / "spool"):
        drafts.uno((1, 2, 4), owner=owner, width=6, topk=2)
        drafts.uno((1, 2, 4), owner=owner, width=6, topk=2, tree_draft_width=3)
    return owner.lora_manager.drafts
