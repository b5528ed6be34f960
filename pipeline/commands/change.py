"""`pellucid change`: changes what a waiting job asks for. The job keeps its submission time,
its priority and the time that it has waited."""

from __future__ import annotations

from functools import partial
from typing import Any

from pipeline.commands.hold import act, effect
from pipeline.errors import UserError
from pipeline.options import JOBS, PREVIEW, takes
from pipeline.remote import Service
from scheduler.core.request import CHANGEABLE
from scheduler.service.api.shapes import JobChange


@takes(CHANGEABLE, different=True)
def change(jobs: JOBS, service: Service, preview: PREVIEW = False, **asked: Any) -> None:
    """Change the options of waiting jobs. The jobs keep their submission time, their priority
    and the time that they have waited.

    A running job cannot be changed, not even its time limit. `--preview` forecasts the start
    without and with the change, and changes nothing. The service's log keeps each change, and who
    made it.

    Examples:

      pellucid change 7njjr7qk87fm --gpus 2 --preview

      pellucid change 7njjr7qk87fm --share --time-limit 1:00:00

      pellucid change 'ARRAY_[0-4]' --gpus 2
    """
    wanted = {name: value for name, value in asked.items() if value is not None}
    if not wanted:
        raise UserError("say what is to be different: --gpus, --time-limit, --share, --vc, ...")
    lines = partial(effect, "is changed, and keeps its place")
    act(
        kind=JobChange,
        service=service,
        jobs=jobs,
        lines=lines,
        ask=lambda client, job: client.change(job, preview=preview, **wanted),
    )
