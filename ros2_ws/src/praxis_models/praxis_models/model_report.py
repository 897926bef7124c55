# SPDX-License-Identifier: Apache-2.0
"""What diagnostics say of the model."""

from __future__ import annotations

from typing import Any

from praxis_core.diagnostics import Level, Report

from praxis_models.faults import FINAL
from praxis_models.goals.goal import Goal
from praxis_models.goals.policy_goal import PolicyGoal
from praxis_models.inference_statistics import InferenceStatistics
from praxis_models.model_link import ModelLink


def model_report(
    link: ModelLink, statistics: InferenceStatistics, goal: Goal | None, stale_before: int
) -> Report:
    """Level, message and values.

    Args:
        link: The model.
        statistics: Of its inferences.
        goal: In progress, or None.
        stale_before: Stale observations of earlier goals.
    """
    meta, worker, trouble = link.meta, link.worker, link.trouble
    running = goal if isinstance(goal, PolicyGoal) else None
    stale = running.run.stale_observations if running is not None else 0
    values: dict[str, Any] = {
        'connection': link.phase,
        'endpoint': link.address,
        'backend': meta.backend if meta else '',
        'checkpoint': meta.checkpoint if meta else '',
        **statistics.values(),
        'queue_depth': running.queue_depth if running is not None else 0,
        'stale_observations': stale_before + stale,
    }
    if worker is not None:
        values |= {
            'worker': worker.phase,
            'worker_pid': worker.pid or '',
            'worker_restarts': worker.restarts,
            'worker_log': worker.log,
        }
    if trouble is None:
        return Level.OK, f'{values["backend"]} is ready', values
    level = Level.ERROR if trouble.kind in (*FINAL, 'lost', 'refused') else Level.WARN
    return level, trouble.message.splitlines()[0], values
