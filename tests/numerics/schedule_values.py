"""Prints tests/unit/worker/net/schedule_values.h: what torch.optim.lr_scheduler makes of the cases in schedule_test.c.
usage: PYTHON_WITH_TORCH schedule_values.py > tests/unit/worker/net/schedule_values.h"""

import torch


def optimizer(lr, momentum=0.9):
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr, momentum=momentum)


def rates(make, count, lr=0.1, momentum=0.9, metric=None):
    opt = optimizer(lr, momentum)
    schedule = make(opt)
    out = []
    for i in range(count):
        out.append((opt.param_groups[0]["lr"], opt.param_groups[0]["momentum"]))
        opt.step()
        if metric is None:
            schedule.step()
        else:
            schedule.step(metric[i])
    return out


def show(name, pairs):
    print(f"static const struct schedule_now {name}[] = {{")
    for lr, momentum in pairs:
        print(f"    {{{lr!r}, {momentum!r}}},")
    print("};")


def plateau_metrics(count):
    """Falls, stays, rises: a fixed sequence with all branches in it."""
    return [1.0 / (1 + i % 7) + 0.3 * ((i * 5) % 3) for i in range(count)]


def imagenet(epoch, step, length, lr, shift):
    factor = epoch // 30 + (1 if epoch >= 80 else 0)
    lr = lr * (0.1 ** factor)
    if epoch < 5:
        lr = lr * float(1 + step + shift + epoch * length) / (5. * length)
    return lr


def main():
    sched = torch.optim.lr_scheduler
    print("/* Made by tests/numerics/schedule_values.py with PyTorch " + torch.__version__.split("+")[0] + ". */")
    print("#ifndef TESTS_UNIT_WORKER_NET_SCHEDULE_VALUES_H\n#define TESTS_UNIT_WORKER_NET_SCHEDULE_VALUES_H\n")
    print('#include "worker/net/schedule.h"\n')
    show("step_values", rates(lambda o: sched.StepLR(o, 3, 0.5), 12))
    show("cosine_values", rates(lambda o: sched.CosineAnnealingLR(o, 20, 0.001), 20))
    show("one_cycle_values", rates(lambda o: sched.OneCycleLR(o, 0.1, total_steps=40), 40))
    show("one_cycle_three_values", rates(lambda o: sched.OneCycleLR(o, 0.1, total_steps=40, three_phase=True, pct_start=0.25), 40))
    show("one_cycle_fixed_values", rates(lambda o: sched.OneCycleLR(o, 0.1, total_steps=10, cycle_momentum=False), 10))
    metrics = plateau_metrics(60)
    print("static const double plateau_metrics[] = {" + ", ".join(repr(m) for m in metrics) + "};")
    show("plateau_values", rates(lambda o: sched.ReduceLROnPlateau(o, patience=2, factor=0.5), 60, metric=metrics))
    show("plateau_max_values", rates(lambda o: sched.ReduceLROnPlateau(
        o, mode="max", patience=1, cooldown=2, threshold=0.05, threshold_mode="abs", min_lr=0.004, factor=0.3), 60, metric=metrics))
    show("warmup_values", rates(lambda o: sched.LambdaLR(o, lambda e: min(1.0, e / 5)), 8))
    show("imagenet_values", [(imagenet(e, s + 1, 4, 0.1, 0), 0.9) for e in (0, 1, 4, 5, 29, 30, 60, 79, 80, 89) for s in range(4)])
    print("\n#endif")


main()
