"""A script of your own under shapetrace: mark each graph that you capture, change nothing else.

Needs torch alone. Under shapetrace every `with shapetrace_capture.shape(...)` block becomes one trace, named by what
you say it is and checked against what was really run. Started by hand, without shapetrace, it runs just the same.

    shapetrace run-local examples/command.yaml --out ./out
"""

import torch

try:
    import shapetrace_capture
except ImportError:  # started by hand
    shapetrace_capture = None

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # ROCm's devices are called cuda too
HIDDEN = 512
SIZES = (8, 4, 2, 1)  # the largest first: later graphs then fit into its memory
ACTIVATIONS = ("relu", "gelu")


class Nothing:
    """Stands in for a capture where shapetrace is not installed."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def shape(**key):
    return Nothing() if shapetrace_capture is None else shapetrace_capture.shape(**key)


def step(rows, up, down, activation):
    hidden = getattr(torch.nn.functional, activation)(rows @ up)
    return hidden @ down


@torch.inference_mode()
def main():
    up = torch.randn(HIDDEN, 4 * HIDDEN, device=DEVICE)
    down = torch.randn(4 * HIDDEN, HIDDEN, device=DEVICE)
    if shapetrace_capture is not None:
        # said before the first capture, so that a shape that never comes is noticed
        shapetrace_capture.plan(
            {"size": size, "unit": "bs", "runner": "UserScript", "activation": activation}
            for size in SIZES
            for activation in ACTIVATIONS
        )
    graphs = {}
    for size in SIZES:
        rows = torch.randn(size, HIDDEN, device=DEVICE)
        for activation in ACTIVATIONS:
            for _ in range(2):  # warm up outside the capture
                step(rows, up, down, activation)
            with shape(size=size, unit="bs", runner="UserScript", activation=activation):
                if DEVICE == "cuda":
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        output = step(rows, up, down, activation)
                else:  # no graphs on a CPU: the same step is recorded, and the trace says so
                    graph, output = None, step(rows, up, down, activation)
            graphs[size, activation] = (graph, output)
    print(f"captured {len(graphs)} shapes on {DEVICE}")


if __name__ == "__main__":
    main()
