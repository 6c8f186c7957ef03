"""Prints tests/unit/worker/net/optim_values.h: torch.optim's Adam and AdamW as they are; LARS, Apex's LARC and both
Lookaheads, which PyTorch has not, from the references below, in double precision around torch.optim.
usage: optim_values.py > optim_values.h (with a Python that has torch)"""
import torch

STEPS, N = 8, 6
START = [1.0, -2.0, 0.5, 0.25, -0.75, 0.0]


def grads():
    """Numbers that fp32 holds exactly, of changing size and sign; the last element never has one."""
    for s in range(STEPS):
        yield [((7 * s + 3 * k) % 11 - 5) / 8 * 2.0 ** (-(s % 3)) for k in range(N - 1)] + [0.0]


class Lars:
    """You, Gitman and Ginsburg 2017, algorithm 1: the rate stands inside the momentum; a ratio of 1 for norms of 0."""

    def __init__(self, params, lr, momentum, weight_decay, trust, adapts=True):
        self.p, self.state = params[0], {"momentum_buffer": torch.zeros_like(params[0])}
        self.rule = lr, momentum, weight_decay, trust, adapts

    def step(self):
        lr, momentum, decay, trust, adapts = self.rule
        p, v, local = self.p, self.state["momentum_buffer"], 1.0
        if adapts and p.norm() > 0:
            local = trust * p.norm() / (p.grad.norm() + decay * p.norm())
        v.mul_(momentum).add_(lr * local * (p.grad + decay * p.data))
        p.data -= v


class Larc(torch.optim.SGD):
    """apex/parallel/LARC.py with clip=True around SGD, whose own weight decay it sets to 0."""

    def __init__(self, params, lr, momentum, weight_decay, trust, eps=1e-8, nesterov=False):
        super().__init__(params, lr, momentum=momentum, nesterov=nesterov)
        self.rule = lr, weight_decay, trust, eps

    def step(self):
        lr, decay, trust, eps = self.rule
        p = self.param_groups[0]["params"][0]
        param_norm, grad_norm = torch.norm(p.data), torch.norm(p.grad.data)
        if param_norm != 0 and grad_norm != 0:
            adaptive = trust * param_norm / (grad_norm + param_norm * decay + eps)
            p.grad.data += decay * p.data
            p.grad.data *= min(adaptive / lr, 1)
        super().step()


class Lookahead:
    """Zhang et al. 2019, algorithm 1: slow weights from the start, joined at steps k, 2k, ..."""

    def __init__(self, inner, p, k, alpha):
        self.inner, self.p, self.k, self.alpha, self.t = inner, p, k, alpha, 0
        self.slow = p.data.clone()

    def join(self):
        self.slow += self.alpha * (self.p.data - self.slow)
        self.p.data.copy_(self.slow)

    def step(self):
        self.inner.step()
        self.t += 1
        if self.t % self.k == 0:
            self.join()


class SeedLookahead(Lookahead):
    """alphadl/lookahead.pytorch: an update at counter 0, the first of which makes the slow weights, after step 1."""

    def step(self):
        self.inner.step()
        if self.t == 0:
            if not hasattr(self, "lazy"):
                self.lazy, self.slow = True, self.p.data.clone()
            self.join()
        self.t = (self.t + 1) % self.k


SGD = dict(lr=0.1, momentum=0.9, weight_decay=0.01)
LARS = dict(lr=2.0, momentum=0.9, weight_decay=0.01, trust=0.02)
CASES = [  # name, C fields, dtype, inner optimizer of [p], Lookahead of (inner, p)
    ("adam", ".kind = OPTIM_ADAM, .lr = 0.05F, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8F", torch.float32,
     lambda p: torch.optim.Adam(p, lr=0.05), None),
    ("adam with decay", ".kind = OPTIM_ADAM, .lr = 0.05F, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3F, "
     ".weight_decay = 0.1F", torch.float32,
     lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1), None),
    ("adamw", ".kind = OPTIM_ADAMW, .lr = 0.05F, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8F, .weight_decay = 0.1F",
     torch.float32, lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1), None),
    ("lars", ".kind = OPTIM_LARS, .lr = 2.0F, .momentum = 0.9F, .weight_decay = 0.01F, .trust = 0.02F", torch.float64,
     lambda p: Lars(p, **LARS), None),
    ("lars of a bias", ".kind = OPTIM_LARS, .lr = 0.1F, .momentum = 0.9F, .weight_decay = 0.01F, .trust = 0.02F",
     torch.float64, lambda p: Lars(p, 0.1, 0.9, 0.01, 0.02, adapts=False), None),
    ("larc", ".kind = OPTIM_LARC, .lr = 0.1F, .momentum = 0.9F, .weight_decay = 0.01F, .trust = 0.02F, .eps = 1e-8F",
     torch.float64, lambda p: Larc(p, 0.1, 0.9, 0.01, 0.02), None),
    ("larc that clips", ".kind = OPTIM_LARC, .lr = 0.1F, .momentum = 0.9F, .weight_decay = 0.01F, .trust = 0.1F, "
     ".eps = 1e-8F, .nesterov = true", torch.float64, lambda p: Larc(p, 0.1, 0.9, 0.01, 0.1, nesterov=True), None),
    ("lookahead of the paper", ".lr = 0.1F, .momentum = 0.9F, .weight_decay = 0.01F, "
     ".lookahead = OPTIM_LOOKAHEAD_PAPER, .every = 3, .alpha = 0.5F", torch.float64,
     lambda p: torch.optim.SGD(p, **SGD), lambda o, p: Lookahead(o, p, 3, 0.5)),
    ("lookahead of seed 2", ".lr = 0.1F, .momentum = 0.9F, .weight_decay = 0.01F, "
     ".lookahead = OPTIM_LOOKAHEAD_SEED, .every = 3, .alpha = 0.75F", torch.float64,
     lambda p: torch.optim.SGD(p, **SGD), lambda o, p: SeedLookahead(o, p, 3, 0.75)),
    ("lookahead around adamw", ".kind = OPTIM_ADAMW, .lr = 0.05F, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8F, "
     ".weight_decay = 0.1F, .lookahead = OPTIM_LOOKAHEAD_PAPER, .every = 2, .alpha = 0.25F", torch.float32,
     lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1), lambda o, p: Lookahead(o, p, 2, 0.25)),
]
STATES = [("momentum_buffer", "OPTIM_MOMENTUM"), ("exp_avg", "OPTIM_EXP_AVG"), ("exp_avg_sq", "OPTIM_EXP_AVG_SQ")]


def row(values):
    return "{" + ", ".join(f"{v:.9g}" for v in values) + "}"


def state_rows(optimizer, inner, p):
    state = inner.state if isinstance(inner, Lars) else inner.state[p]
    rows = [f"[{name}] = {row(state[key].tolist())}" for key, name in STATES if state.get(key) is not None]
    return rows + ([f"[OPTIM_SLOW] = {row(optimizer.slow.tolist())}"] if optimizer is not inner else [])


def main():
    print("/* Written by tests/numerics/optim_values.py with PyTorch " + torch.__version__.split("+")[0] + ". */")
    print("#ifndef TESTS_UNIT_WORKER_NET_OPTIM_VALUES_H\n#define TESTS_UNIT_WORKER_NET_OPTIM_VALUES_H\n\n#include \"worker/net/optim.h\"\n")
    print("/* clang-format off */")
    print("#define STEPS", STEPS)
    print("#define N", N)
    print(f"static const float start[N] = {row(START)};")
    print("static const float grads[STEPS][N] = {" + ", ".join(row(g) for g in grads()) + "};")
    print("static const struct {\n    const char *name;\n    struct optim optim;\n    bool adapts;\n"
          "    double params[STEPS][N]; /* after each step */\n    double states[OPTIM_STATES][N]; /* at the end */\n"
          "} cases[] = {")
    for name, fields, dtype, make, wrap in CASES:
        p = torch.nn.Parameter(torch.tensor(START, dtype=dtype))
        inner = make([p])
        optimizer = wrap(inner, p) if wrap else inner
        params = []
        for g in grads():
            p.grad = torch.tensor(g, dtype=dtype)
            optimizer.step()
            params.append(row(p.tolist()))
        print(f'    {{"{name}", {{{fields}}}, {"false" if "bias" in name else "true"},')
        print("     {" + ",\n      ".join(params) + "},")
        print("     {" + ",\n      ".join(state_rows(optimizer, inner, p)) + "}},")
    print("};\n\n#endif")


main()
