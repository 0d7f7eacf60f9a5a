"""Every pair occurs once, every rank once per round, and shared interfaces carry one pair at a time."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.probe.tournament import partners, plan_rounds, tournament
from tests.support.reach import reach, reaches


@pytest.mark.parametrize("number", range(2, 17))
def test_tournament(number: int) -> None:
    rounds = tournament(range(number))
    assert len(rounds) == number - 1 + number % 2
    assert Counter(pair for pairing in rounds for pair in pairing) == Counter(combinations(range(number), 2))
    for pairing in rounds:
        assert len({rank for pair in pairing for rank in pair}) == 2 * len(pairing)


@pytest.mark.parametrize("number", range(2, 17))
def test_about_as_many_rounds_as_devices_where_nothing_is_shared(number: int) -> None:
    pairs = list(combinations(range(number), 2))
    assert len(plan_rounds(pairs, [str(rank) for rank in range(number)], ())) == number - 1 + number % 2


@pytest.mark.parametrize(("num_hosts", "per_host"), [(2, 2), (2, 4), (4, 2), (4, 4), (8, 2)])
def test_shared_interfaces_need_a_round_for_each_of_their_links(num_hosts: int, per_host: int) -> None:
    host_of = [f"h{rank // per_host}" for rank in range(num_hosts * per_host)]
    pairs = [(a, b) for a, b in combinations(range(len(host_of)), 2) if host_of[a] != host_of[b]]
    # A host can be in one pair per round, and each of its links to others needs one.
    assert len(plan_rounds(pairs, host_of, host_of)) == per_host * (len(host_of) - per_host)


@reaches(several_rounds=0.1, at_once=0.05, shared=0.1, hosts=0.1)
@given(st.data(), st.integers(2, 12), st.integers(1, 5))
def test_rules_hold_for_any_pairs(data: st.DataObject, number: int, num_hosts: int) -> None:
    host_of = data.draw(st.lists(st.sampled_from("abcde"[:num_hosts]), min_size=number, max_size=number))
    count = data.draw(st.integers(0, number // 2))
    pairs = data.draw(st.sets(st.sampled_from(list(combinations(range(number), 2))), min_size=count))
    alone = data.draw(st.sets(st.sampled_from("abcde")))
    rounds = plan_rounds(pairs, host_of, alone)
    assert Counter(pair for pairing in rounds for pair in pairing) == Counter(pairs)
    for pairing in rounds:
        ranks = [rank for pair in pairing for rank in pair]
        assert len(set(ranks)) == len(ranks)
        hosts = Counter(host for a, b in pairing for host in {host_of[a], host_of[b]})
        assert all(count == 1 for host, count in hosts.items() if host in alone)
        reach("at_once", len(pairing) > 1)
    reach("several_rounds", len(rounds) > 1)
    reach("shared", any(len({host_of[a], host_of[b]} & alone) > 0 for a, b in pairs))
    reach("hosts", len(set(host_of)) > 1)


def test_partners() -> None:
    assert partners(((0, 3), (1, 2))) == {0: 3, 3: 0, 1: 2, 2: 1}
