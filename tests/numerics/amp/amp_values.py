"""Writes tests/numerics/amp/amp_values.h: losses and loss scales of the first 50 steps of the tutorials' ConvNet on MNIST
in mixed precision. Everything is computed in fp32 by PyTorch on the CPU and rounded to fp16 (or bf16), by .half() and
back, wherever a value of that type is written on a GPU: forward by Round, and its gradient on the way back too.
The loss scaler is written out from Apex's rules (apex/amp/scaler.py). Not used here: any code of this project.
usage: amp_values.py MNIST-DIR > amp_values.h (with a Python that has torch)"""
import gzip, sys
import torch
import torch.nn.functional as F

STEPS, BATCH, LR, MOMENTUM = 50, 100, 0.01, 0.9
torch.set_num_threads(2)


def idx(name, header):
    return torch.frombuffer(bytearray(gzip.open(f"{sys.argv[1]}/{name}").read()[header:]), dtype=torch.uint8)


IMAGES = idx("train-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28)
LABELS = idx("train-labels-idx1-ubyte.gz", 8).long()


def rounder(low):
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.to(low).float()

        @staticmethod
        def backward(ctx, g):
            return g.to(low).float()
    return Round.apply


def initial():
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(1, 16, 5, padding=2), torch.nn.BatchNorm2d(16), torch.nn.Conv2d(16, 32, 5, padding=2),
              torch.nn.BatchNorm2d(32), torch.nn.Linear(7 * 7 * 32, 10)]
    return [p.detach().clone() for layer in layers for p in layer.parameters()]


def run(level, low, dynamic, scale):
    r = rounder(low)
    cut = lambda t: t.to(low).float()
    pure = level == 3
    params = [cut(p) if pure else p for p in initial()]
    bufs, unskipped, rows = [None] * len(params), 0, []
    order = torch.randperm(60000, generator=torch.Generator().manual_seed(0))
    for step in range(STEPS):
        pick = order[step * BATCH:(step + 1) * BATCH]
        leaves = [p.clone().requires_grad_() for p in params]
        is_norm = lambda i: i in (2, 3, 6, 7)
        w = [p if is_norm(i) and not pure else r(p) for i, p in enumerate(leaves)]
        x = cut(IMAGES[pick].float() / 255)
        for at in (0, 4):
            x = r(F.conv2d(x, w[at], w[at + 1], padding=2))
            x = r(F.batch_norm(x, None, None, w[at + 2], w[at + 3], training=True))
            x = r(F.max_pool2d(F.relu(x), 2))
        x = r(F.linear(x.flatten(1), w[8], w[9]))
        loss = F.cross_entropy(x, LABELS[pick])
        rows.append((loss.item(), scale))
        (loss * scale).backward()
        grads = [p.grad for p in leaves]
        if dynamic and not all(torch.isfinite(g).all() for g in grads):
            scale, unskipped = scale / 2, 0
            continue
        unskipped += 1
        if dynamic and unskipped == 2000:
            scale, unskipped = min(2.0 ** 24, scale * 2), 0
        for i, g in enumerate(grads):
            g = g / scale
            bufs[i] = g if bufs[i] is None else MOMENTUM * bufs[i] + g
            params[i] = params[i] - LR * bufs[i]
            if pure:
                bufs[i], params[i] = cut(bufs[i]), cut(params[i])
    return rows


# O1 and O2 differ in what their code keeps, not in these values. No step is skipped: the scale stays.
CASES = [(("O1", "O2"), 2, "fp16", torch.float16, True, 65536.0), (("O3",), 3, "fp16", torch.float16, False, 1.0),
         (("O2",), 2, "bf16", torch.bfloat16, False, 1.0), (("O3",), 3, "bf16", torch.bfloat16, False, 1.0)]
print(f"/* Made by amp_values.py with PyTorch {torch.__version__.split('+')[0]}. */")
print("#ifndef TESTS_NUMERICS_AMP_AMP_VALUES_H\n#define TESTS_NUMERICS_AMP_AMP_VALUES_H\n")
print(f"#define AMP_STEPS {STEPS}\n")
print("""static const struct amp_case {
    const char *levels[2]; /* with these values; NULL at the end where there is one */
    const char *half_type;
    float scale; /* the loss scale, the same before each of the steps */
    float losses[AMP_STEPS];
} amp_cases[] = {""")
for levels, number, name, low, dynamic, scale in CASES:
    rows = run(number, low, dynamic, scale)
    assert all(row[1] == scale for row in rows)
    quoted = ", ".join(f'"{level}"' for level in levels)
    print(f'    {{{{{quoted}}}, "{name}", {scale:.1f}F,')
    losses = [f"{row[0]:.9g}F" for row in rows]
    for i in range(0, STEPS, 6):
        last = i + 6 >= STEPS
        print(("     {" if i == 0 else "      ") + ", ".join(losses[i:i + 6]) + ("}}," if last else ","))
print("};")
print("\n#endif")
