# SPDX-License-Identifier: Apache-2.0
"""Parameters of the recorder."""

from __future__ import annotations

from typing import Literal

from praxis_core.parameters import ParameterModel
from pydantic import Field

_FIXED = {'read_only': True}


class RecorderParameters(ParameterModel):
    """See the descriptions; sizes and rates are those of one episode."""

    contract: str = Field(
        description='path of the robot contract', min_length=1, json_schema_extra=_FIXED
    )
    dataset_root: str = Field(
        'recordings/dataset',
        description='folder of the LeRobot dataset; empty records bags only',
        json_schema_extra=_FIXED,
    )
    bag_root: str = Field(
        'recordings/bags',
        description='folder in which each episode becomes a bag',
        min_length=1,
        json_schema_extra=_FIXED,
    )
    bag_storage: Literal['mcap', 'sqlite3'] = Field(
        'mcap', description='storage of the bags', json_schema_extra=_FIXED
    )
    bag_image_encoding: Literal['raw', 'jpeg', 'png'] = Field(
        'jpeg',
        description='form in which images are stored; the dataset is made from the same payload',
        json_schema_extra=_FIXED,
    )
    jpeg_quality: int = Field(
        90, ge=1, le=100, description='of bag_image_encoding jpeg', json_schema_extra=_FIXED
    )
    record_depth: bool = Field(
        False, description='store depth images in the bag', json_schema_extra=_FIXED
    )
    extra_topics: list[str] = Field(
        [],
        description='further topics for the bag, each "NAME package/msg/Type"',
        json_schema_extra=_FIXED,
    )
    min_free_gb: float = Field(
        2.0,
        ge=0.0,
        description='GiB that must stay free; below it no episode starts and a running one ends',
    )
    watermark_s: float = Field(
        0.2,
        ge=0.0,
        le=10.0,
        description='a row closes when log time is this far behind its end, s',
        json_schema_extra=_FIXED,
    )
    default_task: str = Field('', description='task of the service ~/start')
    keep_discarded_bags: bool = Field(
        False, description='a discarded episode keeps its bag', json_schema_extra=_FIXED
    )
    participant: str = Field(
        'recorder',
        description="name in observation_ack, as in the simulator's lockstep_participants",
        min_length=1,
        json_schema_extra=_FIXED,
    )
    encode_threads: int = Field(
        2, ge=1, le=16, description='threads that encode images', json_schema_extra=_FIXED
    )
    max_waiting_mb: int = Field(
        256,
        ge=16,
        description='MiB that may wait before the bag, and again before the dataset; beyond it '
        'messages are dropped and counted',
        json_schema_extra=_FIXED,
    )
