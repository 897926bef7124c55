# SPDX-License-Identifier: Apache-2.0
"""The node `recorder`: subscriptions, services and status around `EpisodeRecorder`."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import cv2
from praxis_core import qos
from praxis_core.contract import load_contract
from praxis_core.diagnostics import Diagnostics, Level, Report, StreamMonitor
from praxis_core.errors import ErrorCode
from praxis_core.lifecycle import AutostartNode
from praxis_core.parameters import ParameterError, declare
from praxis_core.process import run
from praxis_data.recover import is_saved, unfinished_bags
from praxis_interfaces.msg import EpisodeStatus, ObservationAck
from praxis_interfaces.srv import DiscardEpisode, StartEpisode, StopEpisode
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from rclpy.task import Future as RosFuture
from std_srvs.srv import Trigger

from praxis_hil.acknowledgement import Observation
from praxis_hil.dataset import Dataset
from praxis_hil.disk_space import GIB, DiskGuard
from praxis_hil.episode_files import EpisodeFiles, git_commit
from praxis_hil.episodes import EpisodeRecorder
from praxis_hil.image_encoding import ImageEncoder
from praxis_hil.recorder_parameters import RecorderParameters
from praxis_hil.session import Saved
from praxis_hil.status import RefusedError, Status
from praxis_hil.subscriptions import Subscriptions, bag_topics
from praxis_hil.topics import Kind, recorded_topics

WATCH_PERIOD_S = 0.5


class RecorderNode(AutostartNode):
    """Records episodes to rosbag2 bags and a LeRobot dataset."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('recorder', **kwargs)
        self._settings = declare(self, RecorderParameters, self._on_parameters)
        self._recorder: EpisodeRecorder | None = None
        self._readers: Subscriptions | None = None
        self._disk: DiskGuard | None = None
        self._monitors: dict[str, StreamMonitor] = {}

    def _on_parameters(self, parameters: RecorderParameters) -> None:
        if self._disk is not None:
            self._disk.min_free_gb = parameters.min_free_gb

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the contract, open the dataset, and report what a crash left behind."""
        p = self._settings.value
        self._contract = load_contract(p.contract)
        bag_root, dataset_root = Path(p.bag_root).absolute(), Path(p.dataset_root).absolute()
        self._encoder = ImageEncoder(p.bag_image_encoding, p.jpeg_quality)
        try:
            topics = recorded_topics(self._contract, depth=p.record_depth, extra=p.extra_topics)
            self._routes = bag_topics(self, topics, self._encoder)
        except ValueError as error:
            raise ParameterError(str(error)) from error
        try:
            bag_root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ParameterError(f'parameter bag_root: {error}') from error
        try:
            dataset = Dataset(dataset_root, self._contract) if p.dataset_root else None
        except OSError as error:
            raise ParameterError(f'parameter dataset_root: {error}') from error
        self._tombstone = dataset.tombstone if dataset else _no_dataset
        self._disk = DiskGuard([bag_root] + ([dataset_root] if dataset else []), p.min_free_gb)
        self._files = EpisodeFiles(
            contract=self._contract,
            bag_root=bag_root,
            bag_storage=p.bag_storage,
            dataset=dataset,
            dataset_root=dataset_root,
            watermark_s=p.watermark_s,
            namespace=self.get_namespace().rstrip('/'),
            configuration=p.model_dump(
                include={'bag_image_encoding', 'jpeg_quality', 'watermark_s', 'record_depth'}
            ),
            commit=git_commit(),
            max_waiting_bytes=p.max_waiting_mb << 20,
            keep_discarded_bags=p.keep_discarded_bags,
        )
        for path in unfinished_bags(bag_root):
            if dataset and is_saved(path, dataset_root):
                continue
            command = f'praxis bag recover {shlex.quote(str(path))}'
            if dataset:
                command += f' --dataset {shlex.quote(str(dataset_root))}'
            self.get_logger().warning(f'unfinished episode {path}; recover it with `{command}`')
        topics = self._contract.deployment.topics
        self._status_publisher = self.create_publisher(
            EpisodeStatus, topics.episode_status, qos.LATCHED
        )
        self._ack_publisher = self.create_publisher(
            ObservationAck, topics.observation_ack, qos.COMMAND_PUBLISH
        )
        self._diagnostics = Diagnostics(self, self._contract.name)
        self._diagnostics.add('episodes', self._report)
        self._diagnostics.add('disk', self._report_disk)
        self._serve()
        return TransitionCallbackReturn.SUCCESS

    def _serve(self) -> None:
        # Reentrant: an episode can start while the answer to `stop` waits for the disk.
        group = ReentrantCallbackGroup()
        self._served = [
            self.create_service(kind, name, callback, callback_group=group)
            for kind, name, callback in (
                (StartEpisode, 'start_episode', self._on_start),
                (StopEpisode, 'stop_episode', self._on_stop),
                (DiscardEpisode, 'discard_episode', self._on_discard),
                (Trigger, '~/start', self._on_start_trigger),
                (Trigger, '~/stop', self._on_stop_trigger),
                (Trigger, '~/discard', self._on_discard_trigger),
            )
        ]

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Subscribe, acknowledge observations, accept episodes."""
        p = self._settings.value
        self._recorder = EpisodeRecorder(
            self._routes,
            self._encoder,
            self._files.open,
            self._tombstone,
            self._disk,
            on_status=self._publish_status,
            on_observation=self._acknowledge,
            on_warning=self.get_logger().warning,
            max_waiting_bytes=p.max_waiting_mb << 20,
            workers=p.encode_threads,
        )
        deployment = self._contract.deployment
        for topic, _ in self._routes:
            if topic.kind is not Kind.OTHER:
                camera = deployment.cameras.get(topic.camera)
                hz = camera.fps if camera else deployment.record_hz
                monitor = StreamMonitor(topic.camera or topic.name, hz)
                self._monitors[topic.name] = self._diagnostics.watch(monitor)
        self._readers = Subscriptions(self, [t for t, _ in self._routes], self._take)
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._watch_timer = self.create_timer(WATCH_PERIOD_S, self._watch, clock=steady)
        self._publish_status(self._recorder.status)
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End the episode in progress and keep it; returns when all is durable."""
        self.destroy_timer(self._watch_timer)
        self._readers.close()
        recorder, self._recorder = self._recorder, None
        recorder.close()
        for monitor in self._monitors.values():
            self._diagnostics.remove(monitor.name)
        self._monitors.clear()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release services, publishers and the dataset."""
        if self._recorder is not None:
            self._recorder.close('an error ended the recorder')
            self._recorder = None
        for service in getattr(self, '_served', ()):
            self.destroy_service(service)
        for publisher in ('_status_publisher', '_ack_publisher'):
            if hasattr(self, publisher):
                self.destroy_publisher(getattr(self, publisher))
                delattr(self, publisher)
        if hasattr(self, '_diagnostics'):
            self._diagnostics.close()
            del self._diagnostics
        self._served = []
        return TransitionCallbackReturn.SUCCESS

    def _take(self, topic: str, data: bytes, received_ns: int) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        monitor = self._monitors.get(topic)
        if monitor is not None:
            monitor.tick()
        clock = self.get_clock()
        if clock.ros_time_is_active or not received_ns:
            received_ns = clock.now().nanoseconds
        recorder.ingest(topic, data, received_ns)

    def _acknowledge(self, observation: Observation) -> None:
        self._ack_publisher.publish(
            ObservationAck(
                participant=self._settings.value.participant,
                episode_uuid=observation.episode_uuid,
                observation_seq=observation.seq,
            )
        )

    def _watch(self) -> None:
        self._readers.adapt()
        with self._readers.lock:
            self._recorder.watch()
            recording, status = self._recorder.recording, self._recorder.status
        if recording:
            self._publish_status(status)

    def _publish_status(self, status: Status) -> None:
        progress = status.progress
        message = EpisodeStatus(
            state=int(status.state),
            state_name=status.state.name.lower(),
            episode_uuid=status.uuid,
            episode_index=status.index,
            task=status.task,
            frames=progress.frames,
            dropped=progress.dropped,
            stale=progress.stale,
            duration=progress.duration,
            bag_bytes=progress.bag_bytes,
            free_bytes=self._disk.free_bytes(),
            bag_path=status.bag_path,
            dataset_path=status.dataset_path,
            message=status.message,
        )
        message.header.stamp = self.get_clock().now().to_msg()
        self._status_publisher.publish(message)

    def _report(self) -> Report:
        recorder = self._recorder
        if recorder is None:
            return Level.WARN, 'not active', {}
        status, pipeline = recorder.status, recorder.pipeline
        session = recorder.session
        values = {
            'state': status.state.name.lower(),
            'episode_uuid': status.uuid,
            'frames': status.progress.frames,
            'stale_rows': status.progress.stale,
            'waiting_messages': pipeline.waiting,
            'waiting_mib': f'{pipeline.waiting_bytes / (1 << 20):.1f}',
            'peak_waiting_mib': f'{pipeline.peak_bytes / (1 << 20):.1f}',
            'waiting_for_dataset': session.sink.waiting if session and session.sink else 0,
            **{f'lost_{name}': count for name, count in recorder.lost.items()},
        }
        if session is not None:
            values.update({f'dropped {topic}': n for topic, n in session.dropped.items()})
            ahead = recorder.implausible.copy()
            values.update({f'implausible {topic}': n for topic, n in ahead.items()})
            if session.dropped:
                return Level.WARN, f'{status.progress.dropped} messages missing', values
            if ahead:
                return Level.WARN, f'{ahead.total()} header stamps far ahead', values
        if status.state.name == 'FAILED':
            return Level.ERROR, status.message, values
        return Level.OK, values['state'], values

    def _report_disk(self) -> Report:
        shortage = self._disk.shortage()
        values = {
            'free_gib': f'{self._disk.free_bytes() / GIB:.2f}',
            'min_free_gb': self._disk.min_free_gb,
        }
        return (Level.ERROR, shortage, values) if shortage else (Level.OK, 'enough space', values)

    def _active(self) -> EpisodeRecorder:
        if self._recorder is None:
            raise RefusedError(ErrorCode.NOT_ACTIVE, f'the recorder is {self.state_label}')
        return self._recorder

    async def _durable(self, future: Future[Saved]) -> Saved:
        """Wait, without holding up the executor, until an episode is on disk."""
        executor, done = self.executor, RosFuture(executor=self.executor)

        def wake(_: Future[Saved]) -> None:
            done.set_result(None)
            executor.wake()

        future.add_done_callback(wake)
        await done
        return future.result()

    @contextlib.contextmanager
    def _current(self) -> Iterator[EpisodeRecorder]:
        """Give the recorder once it has what was received before the request."""
        recorder = self._active()
        with self._readers.lock:
            self._readers.drain()
            yield recorder

    def _start(self, task: str, uuid: str, metadata: str) -> Status:
        with self._current() as recorder:
            status = recorder.start(task, uuid, metadata, self.get_clock().now().nanoseconds)
        silent = [
            topic.name
            for topic, _ in self._routes
            if (topic.kind is not Kind.OTHER or topic.sequence)
            and not self.count_publishers(topic.name)
        ]
        if silent:
            self.get_logger().warning(f'nobody publishes {", ".join(silent)} yet')
        return status

    def _on_start(
        self, request: StartEpisode.Request, response: StartEpisode.Response
    ) -> StartEpisode.Response:
        try:
            status = self._start(request.task, request.episode_uuid, request.metadata)
        except RefusedError as error:
            return _refuse(response, error)
        response.success = True
        response.episode_uuid, response.bag_path = status.uuid, status.bag_path
        return response

    async def _on_stop(
        self, request: StopEpisode.Request, response: StopEpisode.Response
    ) -> StopEpisode.Response:
        try:
            with self._current() as recorder:
                future = recorder.stop(request.outcome, request.note)
            saved = await self._durable(future)
        except RefusedError as error:
            response.episode_index = -1
            return _refuse(response, error)
        response.success = not saved.error
        response.error_code = int(ErrorCode.WRITE_FAILED if saved.error else ErrorCode.NONE)
        response.error_msg = '; '.join(filter(None, (saved.error, saved.message)))
        response.episode_uuid, response.episode_index = saved.uuid, saved.index
        response.frames = saved.frames
        response.bag_path, response.dataset_path = saved.bag_path, saved.dataset_path
        return response

    async def _on_discard(
        self, request: DiscardEpisode.Request, response: DiscardEpisode.Response
    ) -> DiscardEpisode.Response:
        try:
            with self._current() as recorder:
                future = recorder.discard(request.episode_uuid, request.reason)
            saved = await self._durable(future)
        except RefusedError as error:
            return _refuse(response, error)
        except (OSError, ValueError) as error:
            return _refuse(response, RefusedError(ErrorCode.WRITE_FAILED, str(error)))
        response.success, response.episode_uuid = True, saved.uuid
        return response

    def _on_start_trigger(self, _: Trigger.Request, response: Trigger.Response) -> Any:
        try:
            status = self._start(self._settings.value.default_task, '', '')
        except RefusedError as error:
            response.message = str(error)
            return response
        response.success, response.message = True, status.uuid
        return response

    async def _on_stop_trigger(self, _: Trigger.Request, response: Trigger.Response) -> Any:
        answer = await self._on_stop(StopEpisode.Request(), StopEpisode.Response())
        response.success = answer.success
        response.message = answer.error_msg or (
            f'{answer.episode_uuid}: episode {answer.episode_index}, {answer.frames} frames'
        )
        return response

    async def _on_discard_trigger(self, _: Trigger.Request, response: Trigger.Response) -> Any:
        answer = await self._on_discard(
            DiscardEpisode.Request(reason='operator'), DiscardEpisode.Response()
        )
        response.success, response.message = answer.success, answer.error_msg
        return response


def _refuse(response: Any, error: RefusedError) -> Any:
    response.success = False
    response.error_code, response.error_msg = int(error.code), str(error)
    return response


def _no_dataset(*_: Any) -> Any:
    raise KeyError('no dataset')


def main(args: list[str] | None = None) -> int:
    """Run the node."""
    # Images are spread over threads already; a pool within each call only costs.
    cv2.setNumThreads(1)
    return run(RecorderNode, args=args)


if __name__ == '__main__':
    sys.exit(main())
