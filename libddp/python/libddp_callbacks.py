"""libddp for trainers: for_lightning() is a callback of Lightning, for_trainer() one of transformers' Trainer (docs/libddp.md).

Both report progress, write a checkpoint when the job is stopped or when SIGUSR1 asks for one, after the same step on all ranks, and
keep an older generation of the job from saving."""
import os
import signal

import libddp


def _loss_of(value):
    """A number out of what a training step returns."""
    value = value.get("loss") if isinstance(value, dict) else value
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


class _Watch:
    """Every `every` steps all ranks agree whether to save, and whether to stop."""

    def __init__(self, folder, every):
        self.folder, self.every, self.is_owner, self.wants_save = folder, every, False, False

    def begin(self):
        # Lightning's own handler would end one rank at its next step, while the others wait for it.
        signal.signal(signal.SIGTERM, lambda *_: None)
        libddp.catch_signals()
        if libddp.place().rank == 0 and not self.is_owner:
            os.makedirs(self.folder, exist_ok=True)
            libddp.fence(self.folder)
            self.is_owner = True

    def ask(self, step):
        """(save, stop), the same on every rank."""
        self.wants_save = libddp.should_checkpoint() or self.wants_save
        if step % self.every:
            return False, False
        stop = libddp.any_rank(libddp.should_stop() != 0)
        save = libddp.any_rank(self.wants_save) or stop
        self.wants_save = False
        if save and self.is_owner:
            libddp.check_fence()
        return save, stop


def newest_checkpoint(folder, pattern):
    """The path of the newest committed checkpoint, as "checkpoint-{}" or "step-{:08d}.ckpt" names it; None: there is none."""
    step = libddp.place().checkpoint_step
    path = os.path.join(folder, pattern.format(step))
    return path if step and os.path.exists(path) else None


def for_lightning(folder, every=10):
    """Writes FOLDER/step-00000012.ckpt; trainer.fit(..., ckpt_path=newest_checkpoint(FOLDER, LIGHTNING)) resumes from the newest."""
    from lightning.pytorch.callbacks import Callback

    class Launcher(Callback):
        watch = _Watch(folder, every)

        def on_train_start(self, trainer, module):
            self.watch.begin()

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            step = trainer.global_step
            if trainer.is_global_zero:
                steps = trainer.estimated_stepping_batches
                libddp.report(step, 0 if steps in (None, float("inf")) else int(steps), trainer.current_epoch + 1,
                              max(trainer.max_epochs or 0, 0), _loss_of(outputs))
            save, stop = self.watch.ask(step)
            if save:
                self.save(trainer, step)
            trainer.should_stop = trainer.should_stop or stop

        def save(self, trainer, step):
            name = LIGHTNING.format(step)
            trainer.save_checkpoint(os.path.join(folder, name + ".tmp"))
            if self.watch.is_owner:
                libddp.commit(step, name + ".tmp", name)
            trainer.strategy.barrier()

    return Launcher()


LIGHTNING = "step-{:08d}.ckpt"
TRAINER = "checkpoint-{}"


def for_trainer(folder, every=10):
    """FOLDER is the Trainer's output_dir; trainer.train(resume_from_checkpoint=newest_checkpoint(FOLDER, TRAINER))."""
    from transformers import TrainerCallback

    class Launcher(TrainerCallback):
        watch = _Watch(folder, every)
        loss = float("nan")

        def on_train_begin(self, args, state, control, **_):
            self.watch.begin()

        def on_log(self, args, state, control, logs=None, **_):
            self.loss = _loss_of(logs or {})

        def on_step_end(self, args, state, control, **_):
            if state.is_world_process_zero:
                libddp.report(state.global_step, state.max_steps, int(state.epoch or 0) + 1, int(args.num_train_epochs), self.loss)
            save, stop = self.watch.ask(state.global_step)
            control.should_save = control.should_save or save
            control.should_training_stop = control.should_training_stop or stop
            if control.should_save and self.watch.is_owner:
                libddp.check_fence()

        def on_save(self, args, state, control, **_):
            if self.watch.is_owner:
                libddp.commit(state.global_step)

    return Launcher()
