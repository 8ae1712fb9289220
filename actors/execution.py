"""The processes of a job and what they run: makes them, deploys attempts into them, watches them, replaces the dead.

The job manager drives it, and hears what happens: an event for the first row, the end, an error and the death of each
subtask. It decides nothing: which part of the job restarts, and when, is the manager's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import ray
from ray.exceptions import RayActorError, RayError

from penstock.actors.alignment import align
from penstock.actors.counters import CounterReader
from penstock.actors.deaths import explained, left_unclosed, lost_worker, remark
from penstock.actors.deployment import Restore, Wiring, deployments, places, slot_bundles
from penstock.actors.import_path import Imported
from penstock.actors.nodes import lost_nodes
from penstock.actors.process_end import Process, ProcessEndedError, unless_ended, until_ended
from penstock.actors.running_task import SubtaskEvent
from penstock.actors.slots import Slots, remove_slots
from penstock.actors.stacks import SampledStack
from penstock.actors.standbys import Standbys
from penstock.actors.subtask import Stopped, SubtaskActor
from penstock.actors.task_log import LogLine
from penstock.actors.warm_processes import WarmProcesses
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.config import JobConfig
from penstock.engine.errors import ClusterError, JobError, PenstockError, WorkerLostError
from penstock.engine.graph.physical import ChannelPlan, PhysicalGraph
from penstock.engine.job import events as ev
from penstock.engine.metrics import ChannelStatistics, SubtaskMetrics
from penstock.engine.task.alignment import alignment_groups
from penstock.engine.task.rewiring import crossings

_LOG = logging.getLogger(__name__)
_RESET_SECONDS: Final = 10.0
"""How long a function of the user may keep a subtask of a failed attempt from ending before its process is killed."""
_RECONNECT_SECONDS: Final = 30.0
"""How long a function of the user may keep a subtask from taking notice of others that it has channels to or from."""
_METRICS_SECONDS: Final = 2.0
_ROOM_SECONDS: Final = 5.0
"""How long a job that runs smaller than it should does so at least."""
_START_SECONDS: Final = 5.0
"""How much longer to wait for each process that has to start."""
_PINGS: Final = 5
"""How often a subtask is asked within the heartbeat time-out."""
_CALLS: Final = 10_000
"""How many calls an actor takes at once. Pushes wait in the receiver, as many as there is credit on all its channels,
and a process may be deployed again with more of them."""


class Execution:
    """The processes of one job.

    Args:
        job_id: whose.
        config: the job's settings.
        tell: hears what happens.

    Attributes:
        graph: what runs; None before `provide`.
        actors, processes: the actor of each subtask, and its process.
        warm: what the job takes from the warm processes of the cluster.
        attempts: of the subtasks that run, the number of their attempt.
    """

    def __init__(self, job_id: str, config: JobConfig, tell: Callable[[ev.Event], None]) -> None:
        self.actors: dict[Place, Any] = {}
        self.attempts: dict[Place, int] = {}
        self.processes: dict[Place, Process] = {}
        self.graph: PhysicalGraph | None = None
        self._job_id = job_id
        self._config = config
        self._tell = tell
        self._spare: dict[Place, Any] = {}
        self._graph_ref: Any = None
        self._slots = Slots(job_id, config.slot_timeout_ms / 1000, dict(config.slot_labels))
        self.warm = WarmProcesses(config.warm_processes)
        self._standbys = Standbys(
            config.failover.standbys, lambda slot: self._create(slot, 0, 0), lambda: self._slots.count, self.warm.made
        )
        self._actor_class: Any = ray.remote(SubtaskActor)
        self._watches: dict[Place, asyncio.Task[None]] = {}
        self._explaining: set[asyncio.Task[None]] = set()
        self._aligning: list[asyncio.Task[None]] = []
        self._metrics: dict[Place, SubtaskMetrics] = {}
        self._counters = CounterReader()
        self._awaiting_room: asyncio.Task[None] | None = None

    def remove_old(self) -> None:
        """Free what an earlier manager of the job has left on the cluster; its processes have died with it."""
        remove_slots(self._job_id)

    # Processes

    async def provide(self, graph: PhysicalGraph, started: Collection[Place]) -> None:
        """Have a process for each subtask of `graph`: those that live are kept, others are replaced.

        Args:
            graph: what is to run.
            started: what is about to be deployed: those of it that move get the processes that were prepared for it.

        Raises:
            NoRoomError: there is no room.
            WorkerLostError: there is, and yet processes do not start in time.
        """
        self._stop_awaiting_room()
        wanted, bundles = set(places(graph)), self._bundles(graph, started)
        kept = self._slots.kept(bundles)
        # A process dies with the slot that it lives in.
        for place in [one for one in self.actors if one not in wanted or max(one[1], self._slot_of(one)) >= kept]:
            self.discard(place)
            self._metrics.pop(place, None)
            self.processes.pop(place, None)
        if graph is not self.graph:
            self.graph = graph
            uncounted = {(one.task, one.subtask): one for one in graph.uncounted()}
            self._metrics = {**uncounted, **self._metrics}
            self._graph_ref = ray.put(Imported(graph))
        if moving := [place for place in self._spare if place in started]:
            for place in moving:
                self.discard(place)
            self._slots.move()
        await self._slots.resize(bundles)
        await self._leave_lost_nodes(graph, started)
        await self._slots.placed({subtask for task, subtask in wanted if (task, subtask) not in self.actors})
        new = []
        for place in places(graph):
            if place not in self.actors:
                warm = self._spare.pop(place, None)
                if warm is None and graph.task(place[0]).resources is None:
                    warm = self._standbys.take(kept)
                self.actors[place] = warm or self._replacement(graph, place)
                if warm is None:
                    new.append(place)
        self._drop_spare()
        await self._await_new(new)

    def _bundles(self, graph: PhysicalGraph, started: Collection[Place] = ()) -> Sequence[Mapping[str, float]]:
        """What the slots are to have; others stay, too, where something lives there that runs on, and was a standby."""
        run_on = [self._slot_of(one) for one in places(graph) if one in self.attempts and one not in started]
        return self._slots.lengthened(slot_bundles(graph), 1 + max(run_on, default=-1))

    def _slot_of(self, place: Place) -> int:
        actor = self.actors.get(place)
        return place[1] if actor is None else self._standbys.lodged.get(actor, place[1])

    async def _leave_lost_nodes(self, graph: PhysicalGraph, started: Collection[Place]) -> None:
        """Take other slots for all those on nodes that do not answer, as Ray may hold on to them for many seconds yet.

        Who ran there, and is not about to be `started`, has failed: nobody watches it any more.
        """
        # What was prepared for the others is elsewhere already.
        there = set(places(graph)) - self._spare.keys()
        nodes = {place: process.node for place, process in self.processes.items() if place in there}
        if lost := await lost_nodes({node for place, node in nodes.items() if place not in self.actors}):
            self._standbys.leave(lost)
            # Calls to those of whose death nobody knows yet would have no answer before Ray knows.
            slots = {self._slot_of(place) for place, node in nodes.items() if node in lost}
            for place in [place for place in self.actors if self._slot_of(place) in slots]:
                if place in self.attempts and place not in started:
                    error = lost_worker(self.name(place), "its node is lost")
                    self._tell(ev.TaskFailed(place, self.attempts[place], error))
                self.discard(place)
            self.processes = {one: process for one, process in self.processes.items() if nodes.get(one) not in lost}
            await self._slots.replace(slots, lost)

    async def prepare(self, graph: PhysicalGraph, moved: Collection[Place] = ()) -> None:
        """Make the processes that `graph` needs beside those of the graph that runs, while that keeps running.

        Where a slot that is in use would have to be another one, nothing is made before the job has stopped.

        Args:
            graph: what is to run.
            moved: the subtasks that are to have other processes on nodes that stay; all those of their slots are.

        Raises:
            ClusterError: there is no room.
        """
        bundles, slots = self._bundles(graph), self._slots.count
        if self._slots.kept(bundles) < slots:
            return
        new: Sequence[Place]
        if moved:
            await self._slots.find_others({subtask for _, subtask in moved})
            new = sorted(moved)
        else:
            await self._slots.resize(bundles)
            new = [place for place in places(graph) if place not in self.actors]
        seconds = self._config.slot_timeout_ms / 1000 + _START_SECONDS * len(new)
        try:
            self._spare = {place: self._replacement(graph, place) for place in new}
            ref = ray.put(Imported(graph))
            warming = asyncio.gather(*(_call(actor.prepare.remote(ref)) for actor in self._spare.values()))
            self._count_made(await asyncio.wait_for(warming, seconds))
        except BaseException as error:
            self._drop_spare()
            # With slots that nobody uses, the job would never find that room is missing.
            self._slots.shrink(slots)
            if isinstance(error, asyncio.TimeoutError):
                text = f"{len(new)} processes for the rescale did not start within {seconds:g} s"
                raise ClusterError(text) from None
            raise

    def process_for(self, place: Place) -> Any | None:
        """The actor that a subtask of the next deployment will be in, where it is known already."""
        return self._spare.get(place) or self.actors.get(place)

    def leave(self, nodes: Collection[str]) -> Sequence[Place]:
        """Nodes are about to leave: the subtasks in slots that are there. Standbys there end at once."""
        self._standbys.leave(nodes)
        slots = {
            place[1] for place, process in self.processes.items() if process.node in nodes and place in self.actors
        }
        return sorted(place for place in self.actors if place[1] in slots)

    def await_room(self, graph: PhysicalGraph) -> None:
        """Tell once there is room for all slots of `graph`, unless the job is deployed again before."""
        self._stop_awaiting_room()
        self._awaiting_room = asyncio.ensure_future(self._find_room(graph))

    async def _find_room(self, graph: PhysicalGraph) -> None:
        while True:
            # A rescale that fails although there is room is not repeated without a pause.
            await asyncio.sleep(_ROOM_SECONDS)
            # The head of the cluster may be away for a while. Whatever else it is, the job would stay small.
            with contextlib.suppress(Exception):
                await self._slots.room_for(slot_bundles(graph))
                self._tell(ev.RoomFound())
                return

    def _stop_awaiting_room(self) -> None:
        if self._awaiting_room is not None:
            self._awaiting_room.cancel()
            self._awaiting_room = None

    def _drop_spare(self) -> None:
        while self._spare:
            ray.kill(self._spare.popitem()[1])
        self._slots.drop_others()

    def _replacement(self, graph: PhysicalGraph, place: Place) -> Any:
        task_id, subtask = place
        resources = graph.task(task_id).resources
        cpus, gpus = (resources.num_cpus, resources.num_gpus) if resources else (0, 0)
        return self._create(subtask, cpus, gpus)

    async def _await_new(self, new: Sequence[Place]) -> None:
        """Return when the new processes are there: those of a lost node wait until Ray has found another."""
        seconds = self._config.slot_timeout_ms / 1000 + _START_SECONDS * len(new)
        starting = self._all({place: self.actors[place].prepare.remote(self._graph_ref) for place in new})
        try:
            made = await asyncio.wait_for(starting, seconds)
            self.processes |= made
            self._count_made(made.values())
        except asyncio.TimeoutError:
            for place in new:
                self.discard(place)
            raise WorkerLostError(
                f"{len(new)} processes of the job did not start within {seconds:g} s: machines are busy, or nodes that "
                "are left have no room; end other work, raise slot.request.timeout, add nodes, or lower the parallelism"
            ) from None

    def _count_made(self, processes: Iterable[Process]) -> None:
        for process in processes:
            self.warm.made(process.node)

    def _create(self, slot: int, cpus: float, gpus: float) -> Any:
        return self._actor_class.options(
            num_cpus=cpus,
            num_gpus=gpus,
            max_restarts=0,
            max_task_retries=0,
            enable_task_events=False,
            max_concurrency=_CALLS,
            scheduling_strategy=self._slots.strategy(slot),
        ).remote()

    @property
    def waiting_for(self) -> str | None:
        """What the job or its rescale waits for, such as room on the cluster; None: nothing."""
        return self._slots.waiting_for

    @property
    def standby_pids(self) -> Sequence[int]:
        """The ids of the processes that are warm to replace others, on their nodes."""
        return self._standbys.pids

    def fill_standbys(self) -> None:
        """Make standbys in the background, as many as are missing."""
        self._standbys.fill(self._graph_ref)

    def discard(self, place: Place) -> None:
        """Kill the process of a subtask, whether it is dead, stuck or alive, and forget it."""
        actor = self._forget(place)
        if actor is not None:
            ray.kill(actor)

    def _forget(self, place: Place) -> Any | None:
        self._unwatch(place)
        self.attempts.pop(place, None)
        return self.actors.pop(place, None)

    # Attempts

    async def deploy(self, chosen: Collection[Place], attempt: int, restore: Restore | None) -> bool:
        """Run subtasks: returns when all of them are restored and open. False: some are not, which comes as an event.

        Those that run on are connected with them, where they have channels to or from them.

        Raises:
            WorkerLostError: a process died meanwhile; it is forgotten.
        """
        graph = self.graph
        assert graph is not None, "provide comes first"
        channels = graph.output_channels()
        crossing = crossings(graph, channels, chosen)
        numbers = await self._replace_inputs(crossing.inputs)
        attempts = {**self.attempts, **dict.fromkeys(chosen, attempt)}
        wiring = Wiring(channels, self.actors, attempts, numbers)
        self.processes |= await self._all(
            {
                place: self.actors[place].deploy.remote(self._graph_ref, deployment)
                for place, deployment in deployments(wiring, chosen, restore)
            },
            self._config.failover.heartbeat_timeout_ms / 1000,
        )
        await self._connect(crossing.outputs, wiring)
        self.attempts |= dict.fromkeys(chosen, attempt)
        self._watches |= {place: asyncio.ensure_future(self._watch(place, attempt)) for place in chosen}
        opened = await self._all({place: self.actors[place].start.remote(attempt) for place in chosen})
        self._align()
        return all(opened.values())

    async def _replace_inputs(
        self, inputs: Mapping[Place, Sequence[ChannelPlan]]
    ) -> dict[tuple[Place, int, Place], int]:
        """Let subtasks that run on take input from new ones; the numbers of the channels, as in `Wiring`."""
        asked = {
            place: self._running(place).replace_inputs.remote(self.attempts[place], self._graph_ref, added)
            for place, added in inputs.items()
        }
        numbers = {}
        for place, first in (await self._all(asked, _RECONNECT_SECONDS)).items():
            if first is None:
                raise WorkerLostError(f"{self.name(place)} ended while others were rescaled")
            for number, channel in enumerate(inputs[place], first):
                numbers[(channel.upstream_task, channel.upstream_subtask), channel.output, place] = number
        return numbers

    async def _connect(self, outputs: Mapping[Place, Sequence[int]], wiring: Wiring) -> None:
        """Let subtasks that run on send to new ones, which take messages already."""
        connecting = {}
        for place, numbers in outputs.items():
            targets = {output: wiring.targets(place, output) for output in numbers}
            actor = self._running(place)
            connecting[place] = actor.connect.remote(self.attempts[place], self._graph_ref, targets)
        await self._all(connecting, _RECONNECT_SECONDS)

    def _running(self, place: Place) -> Any:
        if place not in self.attempts:
            raise WorkerLostError(f"the process of {self.name(place)} died while others were rescaled")
        return self.actors[place]

    async def cancel(self, chosen: Collection[Place]) -> None:
        """End what these subtasks run. Processes that are dead, or do not end it in time, are killed and forgotten."""
        for place in chosen:
            self._unwatch(place)
            self.attempts.pop(place, None)
        ending = {
            place: asyncio.ensure_future(_call(self.actors[place].reset.remote()))
            for place in chosen
            if place in self.actors
        }
        if ending:
            await asyncio.wait(ending.values(), timeout=_RESET_SECONDS)
        for place, end in ending.items():
            if not end.done() or end.exception() is not None:
                end.cancel()
                self.discard(place)

    async def drain(self) -> None:
        """End the input of all sources."""
        calls = [self.actors[place].drain.remote(attempt) for place, attempt in self.attempts.items()]
        # A process that died meanwhile is noticed elsewhere, and the job is not drained then.
        await asyncio.gather(*map(_call, calls), return_exceptions=True)

    async def _all(self, calls: Mapping[Place, Any], seconds: float | None = None) -> dict[Place, Any]:
        """The answers to a call to each of several subtasks; forgets those whose process has died.

        Args:
            seconds: who has not answered by then counts as dead; None: whoever hangs is found by its heartbeat.

        Raises:
            PenstockError: the first of their errors.
        """
        waiting = (asyncio.wait_for(_call(call), seconds) for call in calls.values())
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        first: PenstockError | None = None
        for place, answer in zip(calls, answers, strict=True):
            if isinstance(answer, RayActorError | asyncio.TimeoutError):
                why = answer if isinstance(answer, RayActorError) else f"it did not answer within {seconds:g} s"
                first = first or lost_worker(self.name(place), why)
                self.discard(place)
            elif isinstance(answer, BaseException):
                raise answer
        if first is not None:
            raise first
        return dict(zip(calls, answers, strict=True))

    def name(self, place: Place) -> str:
        """A subtask in words."""
        assert self.graph is not None
        return f"task {self.graph.task(place[0]).name!r}, subtask {place[1]}"

    # Watching

    async def _watch(self, place: Place, attempt: int) -> None:
        """Tell what happens to a subtask until its attempt is over."""
        actor, process, name = self.actors[place], self.processes[place], self.name(place)
        beating = asyncio.ensure_future(self._heartbeat(place, attempt))
        ended = asyncio.ensure_future(until_ended(process, actor.lifeline.remote))
        seen = 0
        try:
            while reports := await unless_ended(ended, actor.watch.remote(attempt, seen)):
                seen += len(reports)
                for report in reports:
                    match report:
                        case SubtaskEvent.FIRST_ROWS:
                            self._tell(ev.RowsCame(place, attempt))
                        case SubtaskEvent.FINISHED:
                            self._tell(ev.TaskFinished(place, attempt))
                        case error:
                            self._tell(ev.TaskFailed(place, attempt, error))
                            return
        except ProcessEndedError as end:
            lost = lost_worker(name, f"process {process.pid} was killed, or has crashed")
            self._tell(ev.TaskFailed(place, attempt, lost, is_explained=False))
            explaining = asyncio.ensure_future(self._explain(place, attempt, explained(end.call, actor, name, lost)))
            self._explaining.add(explaining)
            explaining.add_done_callback(self._explaining.discard)
            if self.actors.get(place) is actor:
                self._forget(place)
        except RayActorError as died:
            self._tell(ev.TaskFailed(place, attempt, lost_worker(name, died)))
            if self.actors.get(place) is actor:
                self.discard(place)
        except RayError as error:
            lost = WorkerLostError(f"{name} can no longer be watched{remark(error)}")
            self._tell(ev.TaskFailed(place, attempt, lost))
        finally:
            beating.cancel()
            ended.cancel()

    async def _explain(self, place: Place, attempt: int, explained: Coroutine[Any, Any, PenstockError]) -> None:
        self._tell(ev.Explained(place, attempt, await explained))

    async def _heartbeat(self, place: Place, attempt: int) -> None:
        """Fail a subtask whose process lives and does not answer."""
        timeout = self._config.failover.heartbeat_timeout_ms / 1000
        actor = self.actors[place]
        while True:
            await asyncio.sleep(timeout / _PINGS)
            try:
                await asyncio.wait_for(_call(actor.ping.remote()), timeout)
            except asyncio.TimeoutError:
                error = WorkerLostError(
                    f"the process of {self.name(place)} has not answered for {timeout:g} s and is replaced; raise "
                    "heartbeat_timeout if that is too short for it"
                )
                self._tell(ev.TaskFailed(place, attempt, error))
                self.discard(place)
                return
            except RayError:
                return

    def _unwatch(self, place: Place) -> None:
        watch = self._watches.pop(place, None)
        if watch is not None and watch is not asyncio.current_task():
            watch.cancel()

    def _align(self) -> None:
        """Keep the sources of each alignment group together, in the processes that they have now."""
        assert self.graph is not None
        self._stop_aligning()
        for group in alignment_groups(self.graph):
            # Of one that has died meanwhile, its own deployment aligns the group again.
            actors = [self.actors[place] for place in group.places if place in self.actors]
            self._aligning.append(asyncio.ensure_future(align(actors, group.update_interval_ms / 1000)))

    def _stop_aligning(self) -> None:
        while self._aligning:
            self._aligning.pop().cancel()

    # Metrics, end

    async def metrics(self) -> Sequence[SubtaskMetrics]:
        """The latest counters of all subtasks that have given any."""
        if asking := [asyncio.ensure_future(self._ask_metrics(place)) for place in self.attempts]:
            await asyncio.wait(asking, timeout=_METRICS_SECONDS)
        return self.last_metrics

    async def stacks(self, place: Place, seconds: float) -> Sequence[SampledStack]:
        """Where the threads of a subtask are.

        Raises:
            JobError: there is no such subtask, or it has no process now.
        """
        stacks: Sequence[SampledStack] = await self._actor(place).stacks.remote(seconds)
        return stacks

    async def channels(self, place: Place) -> Sequence[ChannelStatistics]:
        """The channels behind a subtask; errors as for `stacks`."""
        attempt, actor = self.attempts.get(place, 0), self._actor(place)
        return cast("Sequence[ChannelStatistics]", await actor.channels.remote(attempt))

    def _actor(self, place: Place) -> Any:
        if place not in self.actors:
            raise JobError(f"the job has no process for subtask {place[1]} of task {place[0]} now")
        return self.actors[place]

    async def logs(self, after: Mapping[Place, int], most: int) -> Sequence[LogLine]:
        """What the subtasks have printed and logged, behind the line of each that is named: the newest, by time."""
        asking = [
            asyncio.ensure_future(actor.logs.remote(after.get(place, 0), most)) for place, actor in self.actors.items()
        ]
        done = (await asyncio.wait(asking, timeout=_METRICS_SECONDS))[0] if asking else ()
        lines = [line for one in done if one.exception() is None for line in one.result()]
        return sorted(lines, key=lambda line: line.at_ms)[-most:]

    @property
    def last_metrics(self) -> Sequence[SubtaskMetrics]:
        return [self._metrics[place] for place in sorted(self._metrics)]

    async def _ask_metrics(self, place: Place) -> None:
        with contextlib.suppress(RayError, KeyError):
            self._keep_metrics(place, await self._counters.ask(self.actors[place], self.attempts[place]))

    def _keep_metrics(self, place: Place, metrics: SubtaskMetrics | None) -> None:
        if metrics is not None:
            self._metrics[place] = metrics

    async def stop(self, seconds: float) -> PenstockError | None:
        """End all processes, and give the slots back.

        Args:
            seconds: how long they may take to close what they run; those that take longer are killed.

        Returns:
            why something was not closed, of the first subtask of which that is so.
        """
        self._standbys.close()
        self._stop_aligning()
        for place in list(self._watches):
            self._unwatch(place)
        stopping = {place: asyncio.ensure_future(self._stop(place)) for place in self.actors}
        if stopping:
            await asyncio.wait(stopping.values(), timeout=seconds)
        ends = [one.result() if one.done() else self._not_closed(place, seconds) for place, one in stopping.items()]
        self.kill()
        return next(filter(None, ends), None)

    async def _stop(self, place: Place) -> PenstockError | None:
        try:
            stopped: Stopped | None = await self.actors[place].stop.remote()
        except RayError as lost:
            if (why := left_unclosed(lost)) is None:
                return None
            error = WorkerLostError(f"the process of {self.name(place)} died before it was closed: {why}")
            _LOG.warning("%s", error)
            # With checkpoints, all that counts is committed by then, and must not be done again.
            return None if self._config.checkpoints.enabled else error
        self._keep_metrics(place, None if stopped is None else stopped.metrics)
        return None if stopped is None else stopped.error

    def _not_closed(self, place: Place, seconds: float) -> WorkerLostError:
        error = WorkerLostError(f"{self.name(place)} was not closed within {seconds:g} s, and its process was killed")
        _LOG.warning("%s", error)
        return error

    def kill(self) -> None:
        """End all processes without waiting for their ends."""
        self._stop_awaiting_room()
        for place in list(self.actors):
            self.discard(place)
        try:
            self._slots.release()
        except Exception as error:
            # The job ends all the same, and Ray takes them back with this process.
            _LOG.warning("slots could not be given back yet: %s", error)


async def _call(answer: Any) -> Any:
    return await answer
