"""The order that a plan holds: packed, read back, found stale, refused where it is damaged."""

import msgspec
import pytest

import penstock
from penstock.errors import InputError
from penstock.plan import DeviceOrder, Order, Plan
from penstock.program.order import program_of_order, with_order
from penstock.schedules import SCHEDULES, schedule

PROFILE = penstock.load_profile("gpt2", kinds=["T4"], sequence=128)
CLUSTER = penstock.load_cluster("3 x T4 @ 1 GB/s")
NAMES = [device.name for device in CLUSTER.devices]


def make(**options: object) -> Plan:
    return penstock.plan(PROFILE, CLUSTER, 5, planner="balanced", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_order_of_every_schedule_reads_back(name: str) -> None:
    plan = make(schedule=name)
    assert plan.has_order
    costs = penstock.price(msgspec.structs.replace(plan, order=None), PROFILE, CLUSTER)
    by_schedule = schedule(costs)
    kept = program_of_order(plan, NAMES)
    assert kept.same_actions(by_schedule)
    assert with_order(plan, by_schedule) == plan


def test_a_plan_file_holds_the_order(tmp_path: "pytest.TempPathFactory") -> None:
    plan = make(schedule="auto")
    path = f"{tmp_path}/plan.json"
    penstock.save_plan(plan, path)
    again = penstock.load_plan(path)
    assert again == plan
    assert program_of_order(again, NAMES).same_actions(program_of_order(plan, NAMES))


def test_devices_without_actions_stay_idle() -> None:
    program = program_of_order(make(), [*NAMES, "spare"])
    assert program.devices[-1] == "spare"
    assert not list(program.actions("spare"))


def test_another_schedule_makes_the_order_stale() -> None:
    plan = make(schedule="1f1b")
    for changes in ({"schedule": "gpipe"}, {"num_microbatches": 4}, {"stages": make(pipeline_depth=2).stages}):
        changed = msgspec.structs.replace(plan, **changes)
        assert plan.has_order
        assert not changed.has_order
        program = schedule(penstock.price(changed, PROFILE, CLUSTER))
        assert not program.same_actions(program_of_order(plan, NAMES))
    assert msgspec.structs.replace(plan, micro_batch_size=7).has_order


def _damaged(plan: Plan, actions: str, device: str = NAMES[0]) -> Plan:
    assert plan.order is not None
    devices = (DeviceOrder(device, actions), *plan.order.devices[1:])
    return msgspec.structs.replace(plan, order=Order(plan=plan.order.plan, devices=devices))


def test_damaged_orders_are_refused() -> None:
    plan = make()
    assert plan.order is not None
    good = plan.order.devices[0].actions
    for text in ("", "no base64!", good[:-8], good[:20] + ("A" if good[20] != "A" else "B") + good[21:]):
        with pytest.raises(InputError, match=r"is damaged|are not compute actions"):
            program_of_order(_damaged(plan, text), NAMES)
    with pytest.raises(InputError, match="actions for unknown device 'elsewhere'"):
        program_of_order(_damaged(plan, good, "elsewhere"), NAMES)


def test_a_bomb_is_not_unpacked() -> None:
    import zlib
    from base64 import b64encode

    with pytest.raises(InputError, match="is damaged"):
        program_of_order(_damaged(make(), b64encode(zlib.compress(bytes(10**8))).decode()), NAMES)
