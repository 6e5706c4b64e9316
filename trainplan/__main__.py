"""`python -m trainplan llama3-70b --gpus 512xH100`: the layouts of a training step, calculated."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from trainplan.command import asked
from trainplan.errors import PlanError
from trainplan.figures import save_steps


def main(argv: Sequence[str] | None = None) -> int:
    """Print the plan that the command line asks for; 2 with a sentence on stderr for what can't be planned."""
    try:
        plan = asked(argv)
        print(plan)
        if plan.picture is not None:
            save_steps(plan.steps, plan.picture)
    except PlanError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
