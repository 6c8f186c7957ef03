"""Prints tests/unit/worker/net/grad_values.h: label smoothing, clipping and accumulation as PyTorch does them.
usage: grad_values.py (with a Python that has torch) > tests/unit/worker/net/grad_values.h"""
import torch

torch.manual_seed(0)
CLASSES, IMAGES, COUNT = 5, 6, 19


def row(tensor):
    return "{" + ", ".join(f"{v:.9e}F" for v in tensor.flatten().tolist()) + "}"


print("/* Made by tests/numerics/grad_values.py: values of PyTorch. */")
guard = "TESTS_UNIT_WORKER_NET_GRAD_VALUES_H"
print(f"#ifndef {guard}\n#define {guard}\n")
print("#include <stdint.h>\n\n#include \"worker/net/net.h\"\n")
print(f"enum {{ SMOOTH_CLASSES = {CLASSES}, SMOOTH_IMAGES = {IMAGES}, CLIP_COUNT = {COUNT} }};")
scores, labels = torch.randn(IMAGES, CLASSES) * 4, torch.randint(CLASSES, (IMAGES,))
print(f"static const float smooth_scores[{IMAGES * CLASSES}] = {row(scores)};")
print(f"static const int64_t smooth_labels[{IMAGES}] = {{{', '.join(map(str, labels.tolist()))}}};")
print(f"static const struct smooth_case {{\n    float smoothing;\n    double loss;\n    float grads[{IMAGES * CLASSES}];\n}} smooth_cases[] = {{")
for smoothing in (0.0, 0.1, 0.3, 1.0):
    p = scores.double().requires_grad_()
    loss = torch.nn.functional.cross_entropy(p, labels, label_smoothing=smoothing)
    loss.backward()
    print(f"    {{{smoothing}F, {loss.item():.15e}, {row(p.grad)}}},")
print("};")
grads = torch.randn(COUNT) * 3
print(f"static const float clip_grads_in[{COUNT}] = {row(grads)};")
print(f"static const struct clip_case {{\n    struct net_clip clip;\n    float grads[{COUNT}];\n}} clip_cases[] = {{")
for value, norm in ((0.0, 0.0), (0.0, 1.0), (0.0, 0.001), (0.0, 100.0), (0.5, 0.0), (2.5, 0.0), (2.5, 4.0)):
    p = torch.nn.Parameter(torch.zeros(7))
    q = torch.nn.Parameter(torch.zeros(COUNT - 7))
    p.grad, q.grad = grads[:7].clone(), grads[7:].clone()
    if value:
        torch.nn.utils.clip_grad_value_([p, q], value)
    if norm:
        torch.nn.utils.clip_grad_norm_([p, q], norm)
    print(f"    {{{{{value}F, {norm}F}}, {row(torch.cat([p.grad, q.grad]))}}},")
print("};")
print("\n#endif")
