"""What `engine-ctl serve` runs, with limits of a test's choice: a supervisor, an engine, one frontend.

`python -m tests.fakes.watched_serve RUNTIME_DIR MODEL DESCRIPTOR STEP_LIMIT_S SILENCE_LIMIT_S`; the descriptor is a
listening socket.
"""

import sys
from pathlib import Path

from engine.ctl.child import ChildPlan, RestartPolicy
from engine.ctl.supervisor import Observer, Supervisor
from protocol.endpoint import RuntimeFolder


def main(runtime_dir: str, model: str, descriptor: str, step_limit_s: str, silence_limit_s: str) -> int:
    """The supervisor's exit status."""
    shared = ["--runtime-dir", runtime_dir, "--exit-with-parent"]
    served = ["--model", model, "--trust-remote-code", "--step-limit-s", step_limit_s]

    def engine_command(restarts: int) -> list[str]:
        return [sys.executable, "-m", "engine", *served, "--restarts", str(restarts), *shared]

    frontend_command = [sys.executable, "-m", "frontend", "--fd", descriptor, *shared]
    plans = [
        ChildPlan("engine", engine_command),
        ChildPlan("frontend", lambda _: frontend_command, (int(descriptor),)),
    ]
    observer = Observer(lambda _children: None, lambda _index, _status: None, lambda: None)
    policy = RestartPolicy(silence_limit_s=float(silence_limit_s))
    return Supervisor(RuntimeFolder(Path(runtime_dir)), plans, observer, policy).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
