"""What `hpcddp submit` does: choose, show, confirm, send, wait."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hpcddp.backends import choose
from hpcddp.backends.base import Backend, pause_s
from hpcddp.cluster.settings import Settings
from hpcddp.core.errors import FAILED, INCOMPLETE, FullError, HpcddpError, RefusedError, UsageError
from hpcddp.core.run_root import RunKey, Study
from hpcddp.core.text import count
from hpcddp.predict.expected import recorded_prediction
from hpcddp.study.data_jobs import data_job_states, live_words
from hpcddp.study.scope import study_scope
from hpcddp.study.status import RunState, study_states
from hpcddp.study.status_text import progress_line, status_table
from hpcddp.study.study_folder import study_folder
from hpcddp.study.submission_log import latest_events
from hpcddp.submit.choose import ChosenPoints
from hpcddp.submit.one_job import judged
from hpcddp.submit.options import Console, SubmitOptions
from hpcddp.submit.overview import dry_run_words, pending_remarks, pending_text, submitted_words, unasked_words
from hpcddp.submit.pending import PendingRuns, find_pending, pending_runs, with_failed_repeats
from hpcddp.submit.submission_plan import SubmissionPlan, check_plan, obstacles, plan_submission

if TYPE_CHECKING:
    from hpcddp.submit.submit import SubmittedRun
    from hpcddp.submit.until_ci import Known


def submit_points(
    points: ChosenPoints, settings: Settings, options: SubmitOptions, console: Console, precision: Callable[[Study], Known]
) -> int:
    """Shows what is missing, submits it and waits for it, as far as the options say; the exit code. `precision`: how well the
    medians of a study are known. With --wait again and again, where not all is submitted at once, and with --until-ci, as what
    is missing is known only when the runs so far are over.
    """
    plan = plan_submission(points, settings, options)
    study = Study(study_folder(plan.source.file, options.runs, settings).absolute())
    session = _Session(study, choose.make_backend(plan.profile.backend, study, rules=plan.profile.slurm), console, precision)
    scope = study_scope(study, plan.source.file)
    while True:
        pending = session.choose(plan, scope, options)
        session.show(pending)
        if options.dry_run:
            return session.end_dry_run(pending)
        confirmed = session.confirm(pending, options)
        if confirmed and options.preflight and not plan.options.one_allocation:
            plan, pending = session.preflight(plan, pending)
        if confirmed and options.prepare:
            pending = session.prepare(pending)
        submitted = session.send(pending, options) if confirmed else []
        if not options.wait:
            return INCOMPLETE if session.is_any_left(pending, submitted) or pending.unknown else 0
        is_last = not submitted or (options.until_ci is None and len(submitted) >= len(pending.runs))
        unsent = {RunKey(point.label, run) for point, run in pending.runs} - {run.key for run in submitted}
        phases = session.wait(pending, set() if is_last else unsent)
        if phases - {"done", "missing"}:
            return FAILED
        if is_last:
            return INCOMPLETE if "missing" in phases or session.is_open(pending, options) else 0
        options = replace(options, smoke=False, preflight=False, yes=True)  # tested, and confirmed, the first time


@dataclass(frozen=True)
class _Session:
    study: Study
    backend: Backend
    console: Console
    precision: Callable[[Study], Known]

    def choose(self, plan: SubmissionPlan, scope: Mapping[str, int], options: SubmitOptions) -> PendingRuns:
        """What of the plan is to be submitted, with the runs that --until-ci adds."""
        states = study_states(self.study, self.backend, scope)
        if options.until_ci is not None:
            from hpcddp.submit.until_ci import with_repeats

            known = self.precision(self.study) if states else {}
            plan, lines = with_repeats(plan, states, known, options.until_ci, options.max_repeat)
            for line in lines:
                self.console.remark(line)
        return find_pending(self.study, with_failed_repeats(plan, states) if options.failed else plan, states)

    def show(self, pending: PendingRuns) -> None:
        """Each point with what is pending of it, and the cost."""
        for text in pending_remarks(pending):
            self.console.remark(text)
        self.console.echo(pending_text(pending))
        if pending.plan.options.prepare and pending.runs:
            from hpcddp.submit.data_job import preparation_words, preparations

            for text in preparation_words(preparations(self.study, pending.plan, self.backend)):
                self.console.echo(text)

    def end_dry_run(self, pending: PendingRuns) -> int:
        """Says what would keep the runs from being submitted, and that nothing was."""
        for text in obstacles(pending.plan):
            self.console.remark(text)
        try:
            pending.affordable()
            found = judged(pending.plan, pending.next_runs, self.console)
            for text in (*found.certain, *found.uncertain):
                self.console.remark(text)
        except UsageError as error:
            self.console.remark(str(error))
        self.console.echo(dry_run_words(pending.plan))
        return 0

    def confirm(self, pending: PendingRuns, options: SubmitOptions) -> bool:
        """Whether there is something to submit, the budget holds it, the user says yes and the smoke test passes."""
        if not pending.runs:
            from hpcddp.submit.manifest import update_manifest

            update_manifest(self.study, pending.plan)
            unknown = f"Nothing was submitted: the state of {count(len(pending.unknown), 'run')} is unknown."
            self.console.echo(unknown if pending.unknown else "nothing to submit")
            return False
        if not pending.affordable():
            self.console.remark("Nothing was submitted: one more run would exceed the budget. Raise `budget`.")
            return False
        check_plan(pending.plan)
        if options.smoke or options.preflight:
            self.refuse_early(pending)
        if not options.yes and not self.is_small(pending, options):
            self.console.confirm("Submit?")
        if options.smoke:
            from hpcddp.submit.small_jobs import run_smoke

            self.console.echo(run_smoke(self.study, pending.plan, self.backend))
        return True

    def prepare(self, pending: PendingRuns) -> PendingRuns:
        """The same, whose runs wait for jobs that make what is missing of their data."""
        from hpcddp.submit.data_job import prepare_first

        return replace(pending, plan=prepare_first(self.study, pending.plan, self.backend, self.console))

    def preflight(self, plan: SubmissionPlan, pending: PendingRuns) -> tuple[SubmissionPlan, PendingRuns]:
        """Both without nodes that a short job finds slow, where the sweep has spare ones; what it finds is shown."""
        from hpcddp.submit.small_jobs import preflight_text, run_preflight, without_slow_nodes

        record = run_preflight(self.study, pending.plan, self.backend)
        self.console.echo(preflight_text(record, plan))
        return without_slow_nodes(plan, record), replace(pending, plan=without_slow_nodes(pending.plan, record))

    def refuse_early(self, pending: PendingRuns) -> None:
        """RefusedError with everything that Slurm is sure to refuse, before a smoke or preflight job waits in the queue."""
        found = judged(pending.plan, pending.next_runs, self.console)
        if found.certain:
            raise RefusedError("\n".join(found.certain))
        for text in found.uncertain:
            self.console.remark(text)

    def is_small(self, pending: PendingRuns, options: SubmitOptions) -> bool:
        """Whether the user's settings let so much be submitted without a question, which is said."""
        words = unasked_words(pending, waits=options.wait, adds_runs=options.until_ci is not None)
        if words is not None:
            self.console.remark(words)
        return words is not None

    def send(self, pending: PendingRuns, options: SubmitOptions) -> list[SubmittedRun]:
        """The runs that were submitted; fewer than there are where the cluster takes no more for now, which is said."""
        submitted: list[SubmittedRun] = []
        try:
            recorded_prediction(self.study)
        except (HpcddpError, OSError) as error:
            self.console.remark(f"No prediction is recorded: {error}. Move the file away.")
        to_submit = (self.study, pending.plan, self.backend, submitted)
        try:
            if refused := submit_accepted(*to_submit):
                self.console.remark(refused)
            if refused and options.wait and not submitted:
                self.console.remark("Waiting until the cluster accepts one more run.")
                if refused := retry_until_accepted(*to_submit):
                    self.console.remark(refused)
        finally:
            if submitted:
                self.console.echo(submitted_words([run.job for run in submitted], pending.plan.options))
                self.console.progress(f"hpcddp status {shlex.quote(str(self.study.folder))}")
        if options.max_jobs is not None and options.max_jobs <= len(submitted) < len(pending.runs):
            left = count(len(pending.runs) - len(submitted), "run")
            self.console.remark(f"{left} not submitted yet: --max-jobs is {options.max_jobs}. Run `hpcddp submit` again.")
        return submitted

    def is_any_left(self, pending: PendingRuns, submitted: Sequence[SubmittedRun]) -> bool:
        """Whether anything is still to be submitted: another submission may have been faster, which is said where it took all."""
        if len(submitted) >= len(pending.runs):
            return False
        left = bool(pending_runs(pending.plan, study_states(self.study, self.backend)))
        if not left and not submitted:
            self.console.echo("nothing to submit any more: another `hpcddp submit` submitted the runs first")
        return left

    def wait(self, pending: PendingRuns, unsent: Collection[RunKey]) -> set[str]:
        """The phases of the plan's runs when all are over, `missing` for those still to be sent; Ctrl-C ends only the waiting."""
        labels = {planned.point.label for planned in pending.plan.points}
        try:
            states = wait_until_over(self.study, self.backend, labels, self.console.progress)
        except KeyboardInterrupt:
            self.console.remark(f"The jobs continue. Watch them with hpcddp status {shlex.quote(str(self.study.folder))}")
            raise
        self.console.echo(status_table(states))
        if pending.plan.options.failed:  # what is missing is not waited for
            states = [state for state in states if state.phase != "missing"]
        return {"missing" if state.key in unsent else state.phase for state in states}

    def is_open(self, pending: PendingRuns, options: SubmitOptions) -> bool:
        """Whether --until-ci ends with medians less well known than it says."""
        from hpcddp.submit.until_ci import open_points

        labels = [planned.point.label for planned in pending.plan.points]
        return options.until_ci is not None and bool(open_points(labels, self.precision(self.study), options.until_ci))


def wait_until_over(study: Study, backend: Backend, labels: Collection[str], on_change: Callable[[str], None]) -> list[RunState]:
    """The states of the runs of these points once none waits or runs any more; `on_change` gets a line whenever one changes."""
    submitted = {key for key, event in latest_events(study).items() if event.backend == backend.name and event.job is not None}
    shown, begun_s = None, time.monotonic()
    while True:
        states = [state for state in study_states(study, backend) if state.label in labels and state.in_sweep]
        line = "; ".join([progress_line(states), *live_words(data_job_states(study))])
        if line != shown:
            on_change(line)
            shown = line
        live = any(state.phase in ("queued", "running") for state in states)
        doubtful = any(state.phase == "unknown" and state.key in submitted for state in states)
        if not live and not doubtful:  # a controller that does not answer just now has not ended a job
            return states
        time.sleep(pause_s(time.monotonic() - begun_s))


def submit_accepted(study: Study, plan: SubmissionPlan, backend: Backend, submitted: list[SubmittedRun]) -> str | None:
    """Adds to `submitted` what the cluster takes now; why it does not take all, where it does not."""
    from hpcddp.submit.submit import submit_runs

    try:
        submit_runs(study, plan, backend, submitted.append)
    except FullError as error:
        return str(error)
    return None


def retry_until_accepted(study: Study, plan: SubmissionPlan, backend: Backend, submitted: list[SubmittedRun]) -> str | None:
    """The same after the cluster takes the first run, or one allocation. One run at a time: an array would try its halves too."""
    begun_s = time.monotonic()
    first = plan if plan.options.one_allocation else replace(plan, options=replace(plan.options, max_jobs=1))
    is_full = True
    while is_full and not submitted:
        time.sleep(pause_s(time.monotonic() - begun_s))
        is_full = submit_accepted(study, first, backend, submitted) is not None
    rest = replace(plan.options, max_jobs=plan.options.max_jobs and plan.options.max_jobs - 1)
    return submit_accepted(study, replace(plan, options=rest), backend, submitted)
