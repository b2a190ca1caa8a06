"""The first lines of answers about plans, sweeps and pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilescope.questions.first_lines import bits_of_byte, line, refused
from tilescope.questions.question import FirstLine
from tilescope.sentence import filled

if TYPE_CHECKING:
    from tilescope.pipeline.description import Pipeline
    from tilescope.pipeline.simulation import Simulation
    from tilescope.planner import GemmPlan, PlanReport, Unplanned
    from tilescope.planner.plans import ElementPath
    from tilescope.planner.sweeping import Sweep


def of_plan(report: PlanReport) -> FirstLine:
    """What to do with a tile."""
    problem = report.problem
    if not report.candidates:
        asked = filled("No plan for {tile: x } {type}", {"tile": problem.tile, "type": problem.data_type.name})
        reasons = {str(violation): violation for refusal in report.refused for violation in refusal.violations}
        return refused(asked, list(reasons.values()))
    best = report.best
    costs = best.costs
    return line(
        "{tile: x } {type}: swizzle {swizzle}[[, {copies:copy|copies} of box {box: x }]][[, copied by {threads}]], "
        "{smem_bytes} bytes a stage[[, {excess:wavefront} of conflicts]][[; predicted {rate} GB/s ({card})]].",
        tile=problem.tile,
        type=problem.data_type.name,
        swizzle=best.swizzle.name,
        copies=0 if best.box is None else best.tma_instructions,
        box=best.box or (),
        threads="" if best.boxes is not None else problem.copy,
        smem_bytes=best.smem_bytes,
        excess=costs.excess_wavefronts,
        rate="" if costs.gb_per_s is None else f"{costs.gb_per_s:.0f}",
        card="" if problem.card is None else problem.card.name,
    )


def of_element_path(path: ElementPath) -> FirstLine:
    """Where an element lies, and who reads it."""
    return line(
        "Element ({mn}, {k}) lies at byte {address}[[, bits {bits: to }]]: line {line}, chunk {chunk}, bank {bank}[[; {reader}]].",
        mn=path.mn,
        k=path.k,
        address=f"{path.address:#x}",
        bits=bits_of_byte(path.first_bit, path.plan.problem.data_type.bits),
        line=path.line,
        chunk=path.smem_chunk,
        bank=path.bank,
        reader=_reader_of(path),
    )


def _reader_of(path: ElementPath) -> str:
    """Who reads an element."""
    if path.descriptor is not None:
        return f"K step {path.descriptor.k_step} reads it by descriptor {path.descriptor.word:#018x}"
    if path.register is not None:
        return f"lane {path.register.lane} holds it in register {path.register.register}"
    return ""


def of_unplanned(unplanned: Unplanned) -> FirstLine:
    """Why there is no plan."""
    return refused(filled("No plan for {asked}", {"asked": unplanned.asked}), unplanned.violations)


def of_gemm(planned: GemmPlan) -> FirstLine:
    """The tile and the stages of a product, how k is shared, and how long it takes: as predicted, or at least."""
    sharing = planned.schedule.blocks_of_a_tile
    return line(
        "{shape: x } {type}: tile {tile: x }, {stages:stage} of {stage_bytes} bytes, {tiles:tile} of C[[ in "
        "{rounds:round} of {sms} SMs]][[, k shared by {sharing} blocks]][[; {predicted:us} predicted]][[; at least {floor:us}]]"
        "[[ for memory alone: TFLOP/s of {type} are not known for the {unweighed}]].",
        shape=planned.shape,
        type=planned.data_type.name,
        tile=planned.tile,
        stages=planned.stages,
        stage_bytes=planned.in_flight_bytes // planned.stages,
        tiles=planned.tiles,
        rounds=planned.rounds,
        sms=planned.sms,
        sharing=sharing if sharing > 1 else None,
        predicted=planned.predicted_us,
        floor=planned.floor_us if planned.predicted_us is None else None,
        unweighed=_card_of_unknown_rate(planned),
    )


def _card_of_unknown_rate(planned: GemmPlan) -> str | None:
    """The card, if nobody knows how fast it multiplies this type: a floor then says little."""
    card = planned.card
    if card is None or planned.floor_us is None or card.tflops(planned.data_type) is not None:
        return None
    return card.name


def of_simulation(simulation: Simulation) -> FirstLine:
    """Whether a pipeline is right in every order."""
    mistake = simulation.mistake
    if mistake is None:
        return FirstLine(simulation.sentence)
    sentence = filled(
        "{outcome}: {found}: {consequence}.",
        {"outcome": mistake.outcome.capitalize(), "found": mistake.found, "consequence": mistake.consequence},
    )
    return FirstLine(sentence, mistake.fix)


def of_description(pipeline: Pipeline) -> FirstLine:
    """What a description holds."""
    return line(
        "{name}: {roles:role}, {barriers:barrier}, {slots:slot}.",
        name=pipeline.name,
        roles=len(pipeline.roles),
        barriers=len(pipeline.barriers),
        slots=len(pipeline.slots),
    )


def of_sweep(table: Sweep) -> FirstLine:
    """How many problems have a plan."""
    if table.planned == len(table.rows):
        return line("{planned} of {rows} problems have a plan.", planned=table.planned, rows=len(table.rows))
    lacking = next(row for row in table.rows if not row.has_plan)
    said = {"planned": table.planned, "rows": len(table.rows), "asked": lacking.asked}
    verdict = filled("{planned} of {rows} problems have a plan; {asked} has none", said)
    return refused(verdict, lacking.violations) if lacking.violations else FirstLine(f"{verdict}.")
