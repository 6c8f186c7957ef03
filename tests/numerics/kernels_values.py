"""Prints tests/unit/kernels/kernels_values.h: losses, batch norms and pools as PyTorch does them.
usage: kernels_values.py (with a Python that has torch) > tests/unit/kernels/kernels_values.h"""
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
ROWS, CLASSES = 5, 7
N, C, H, W = 2, 4, 4, 5


def row(tensor):
    return "{" + ", ".join("NAN" if v != v else f"{v:.9e}F" for v in tensor.flatten().tolist()) + "}"


def nhwc(tensor):
    return row(tensor.detach().permute(0, 2, 3, 1))


def values(name, text, count):
    print(f"static const float {name}[{count}] = {text};")


print("/* Made by tests/numerics/kernels_values.py: values of PyTorch. */")
guard = "TESTS_UNIT_KERNELS_KERNELS_VALUES_H"
print(f"#ifndef {guard}\n#define {guard}\n\n#include <math.h>\n#include <stdint.h>\n")
print(f"enum {{ LOSS_ROWS = {ROWS}, LOSS_CLASSES = {CLASSES}, PT_N = {N}, PT_C = {C}, PT_H = {H}, PT_W = {W} }};")

logits, labels = torch.randn(ROWS, CLASSES) * 3, torch.randint(CLASSES, (ROWS,))
values("loss_logits", row(logits), ROWS * CLASSES)
print(f"static const int64_t loss_labels[{ROWS}] = {{{', '.join(map(str, labels.tolist()))}}};")
print(f"static const struct loss_values {{\n    float smoothing;\n    double sum;\n    float grads[{ROWS * CLASSES}];\n}} loss_values[] = {{")
for smoothing in (0.0, 0.1, 1.0):
    p = logits.double().requires_grad_()
    F.cross_entropy(p, labels, label_smoothing=smoothing).backward()
    total = F.cross_entropy(logits.double(), labels, label_smoothing=smoothing, reduction="sum")
    print(f"    {{{smoothing}F, {total.item():.15e}, {row(p.grad)}}},")
print("};")
top = logits.topk(5).indices
hits = (top == labels[:, None])
print(f"enum {{ LOSS_TOP1 = {int(hits[:, 0].sum())}, LOSS_TOP5 = {int(hits.sum())} }};")

# Batch norm followed by an addition and a ReLU, in double; the mean is far from 0 in one channel.
x = (torch.randn(N, C, H, W) * torch.tensor([1.0, 3.0, 0.1, 2.0])[:, None, None]
     + torch.tensor([0.0, -1.0, 50.0, 0.5])[:, None, None]).double().requires_grad_()
z = torch.randn(N, C, H, W).double().requires_grad_()
dy = torch.randn(N, C, H, W).double()
norm = nn.BatchNorm2d(C).double()
with torch.no_grad():
    norm.weight.copy_(torch.tensor([1.0, 0.5, -1.5, 2.0]))
    norm.bias.copy_(torch.tensor([0.0, 0.25, 1.0, -0.5]))
    norm.running_mean.copy_(torch.tensor([0.5, 1.0, -2.0, 0.0]))
    norm.running_var.copy_(torch.tensor([1.0, 2.0, 0.5, 3.0]))
count = N * C * H * W
for name, tensor in (("norm_x", x), ("norm_z", z), ("norm_dy", dy)):
    values(name, nhwc(tensor), count)
values("norm_gamma", row(norm.weight), C)
values("norm_beta", row(norm.bias), C)
values("norm_mean_before", row(norm.running_mean), C)
values("norm_var_before", row(norm.running_var), C)
norm.eval()
values("norm_y_evaluation", nhwc(norm(x)), count)
norm.train()
y = F.relu(norm(x) + z)
y.backward(dy)
values("norm_y", nhwc(y), count)
values("norm_mean_after", row(norm.running_mean), C)
values("norm_var_after", row(norm.running_var), C)
values("norm_dx", nhwc(x.grad), count)
values("norm_dz", nhwc(z.grad), count)
values("norm_dgamma", row(norm.weight.grad), C)
values("norm_dbeta", row(norm.bias.grad), C)

# Max pools of values that are often equal, one of them a NaN.
x = torch.randint(3, (N, C, H, W)).float()
x[0, 1, 2, 3] = float("nan")
values("pool_x", nhwc(x), count)
print("struct pool_values {\n    uint32_t kernel, stride, pad, out_height, out_width;\n    const float *y, *dx;\n};")
cases = []
for kernel, stride, pad in ((3, 2, 1), (2, 2, 0), (3, 1, 1)):
    p = x.clone().requires_grad_()
    y = F.max_pool2d(p, kernel, stride, pad)
    y.backward(torch.arange(1.0, y.numel() + 1).view(N, y.shape[2], y.shape[3], C).permute(0, 3, 1, 2))
    name = f"pool_{kernel}{stride}{pad}"
    values(name + "_y", nhwc(y), y.numel())
    values(name + "_dx", nhwc(p.grad), count)
    cases.append(f"    {{{kernel}, {stride}, {pad}, {y.shape[2]}, {y.shape[3]}, {name}_y, {name}_dx}},")
print("static const struct pool_values pool_values[] = {\n" + "\n".join(cases) + "\n};")
print("\n#endif")
