"""What the scheduler granted: host files, the job's variables, parallel environments."""

from __future__ import annotations

import re

import pytest
from hosts import FIXTURES
from hypothesis import given
from hypothesis import strategies as st

from tf_submit import (
    Host,
    UserError,
    local_allocation,
    parse_hostfile,
    parse_pe,
    read_allocation,
)


def slots_by_host(name: str) -> dict[str, int]:
    hosts = parse_hostfile((FIXTURES / "hostfiles" / name).read_text(), name)
    return {host.name: host.slots for host in hosts}


@pytest.mark.parametrize(
    ("hostfile", "slots"),
    [
        (
            "cloud-fqdn.txt",
            {
                "execution-3.zone-a.internal": 32,
                "execution-1.zone-a.internal": 32,
                "execution-0.zone-a.internal": 32,
            },
        ),
        ("interleaved-queues.txt", {"pc81": 2, "pc70": 2}),
        ("master-first-and-last.txt", {"pc81": 2, "pc70": 2}),
        ("ocs-binstance-pe.txt", {"ocs1": 2, "ocs2": 2}),
        ("ocs-nullptr.txt", {"node001": 8, "node002": 8}),
        ("one-host-two-queues.txt", {"n01-53": 16}),
        ("processors-range.txt", {"node001.cluster.local": 8, "node002.cluster.local": 8}),
        (
            "sge-binding-pe-linear-1.txt",
            {"exec6.cluster.local": 2, "exec1.cluster.local": 1, "exec7.cluster.local": 1},
        ),
        ("sge-binding-pe-linear-2.txt", {"exec6.cluster.local": 2, "exec1.cluster.local": 1}),
        ("two-columns-blank-lines.txt", {"node001": 8}),
        ("uneven-1-15.txt", {"n044.example.org": 1, "n108.example.org": 15}),
    ],
)
def test_hosts_come_in_first_seen_order_with_the_slots_of_their_lines_added_up(hostfile, slots):
    assert list(slots_by_host(hostfile).items()) == list(slots.items())


def test_every_host_file_of_the_fixtures_is_in_the_table_above():
    table = test_hosts_come_in_first_seen_order_with_the_slots_of_their_lines_added_up.pytestmark[0].args[1]
    assert {row[0] for row in table} == {path.name for path in (FIXTURES / "hostfiles").iterdir()}


def test_queue_instances_of_a_host_are_merged():
    text = "n1 6 all.q@n1 <NULL>\nn2 1 all.q@n2 <NULL>\nn1 10 distrib.q@n1 <NULL>\n"
    assert parse_hostfile(text, "pe_hostfile")[0] == Host(
        "n1", 16, ("all.q@n1", "distrib.q@n1"), ("<NULL>",), further_slots=10
    )


def test_hosts_that_differ_in_their_domain_alone_are_two():
    text = "n1.east.example.org 1 all.q@n1 UNDEFINED\nn1.west.example.org 2 all.q@n1 UNDEFINED\n"
    assert [host.slots for host in parse_hostfile(text, "pe_hostfile")] == [1, 2]


def test_a_host_whose_name_starts_like_anothers_is_another():
    assert [host.name for host in parse_hostfile("n1 1\nn10 1\nn1 1\n", "pe_hostfile")] == ["n1", "n10"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("n1 1\nn2\n", r"pe_hostfile:2: 'n2': the slots, ''"),
        ("n1 two all.q@n1 UNDEFINED\n", r"pe_hostfile:1: 'n1 two all.q@n1 UNDEFINED': the slots, 'two'"),
        ("n1 0 all.q@n1\n", r"pe_hostfile:1: .*'0', should be a number from 1 up"),
        ("n1 -3 all.q@n1\n", r"pe_hostfile:1: .*'-3'"),
        ("n1 1.5\n", r"pe_hostfile:1: .*'1.5'"),
        ("n1 ３\n", r"pe_hostfile:1: "),
        ("n1 99999999999\n", r"pe_hostfile:1: "),
        ("n1 1\n\n-oProxyCommand=x 1\n", r"pe_hostfile:3: .*'-oProxyCommand=x' is no host name"),
        ("", r"pe_hostfile: the host file is empty"),
        ("\n   \n", r"pe_hostfile: the host file is empty"),
    ],
)
def test_a_malformed_line_is_named_with_file_number_and_text(text, complaint):
    with pytest.raises(UserError, match=complaint) as error:
        parse_hostfile(text, "pe_hostfile")
    assert "host slots queue binding" in str(error.value)  # what to do


PIECES = [
    "n1",
    "n1.example.org",
    " ",
    "\t",
    "\n",
    "1",
    "16",
    "0",
    "-1",
    "all.q@n1",
    "0,0:0,1",
    "<NULL>",
    "\0",
    "é",
]


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_is_a_host_file_or_a_clear_error(text):
    try:
        hosts = parse_hostfile(text, "pe_hostfile")
    except UserError as error:
        assert str(error).startswith("pe_hostfile:")
    else:
        assert hosts and all(host.slots > 0 and host.name for host in hosts)
        assert len({host.name for host in hosts}) == len(hosts)


@given(
    st.lists(st.tuples(st.sampled_from(["n1", "n2", "n10", "n1.a", "n1.b"]), st.integers(1, 99)), min_size=1)
)
def test_no_slot_is_lost_or_made_up(lines):
    hosts = parse_hostfile("".join(f"{name} {slots} all.q@{name} UNDEFINED\n" for name, slots in lines), "f")
    assert [host.name for host in hosts] == list(dict.fromkeys(name for name, _ in lines))
    for host in hosts:
        assert host.slots == sum(slots for name, slots in lines if name == host.name)


# ---- the job's variables


@pytest.fixture
def environ(tmp_path):
    """The variables of a job with three slots on two hosts."""
    hostfile = tmp_path / "pe_hostfile"
    hostfile.write_text("node1 2 all.q@node1 UNDEFINED\nnode2 1 all.q@node2 UNDEFINED\n")
    return {
        "PE_HOSTFILE": str(hostfile),
        "JOB_ID": "17",
        "JOB_NAME": "train",
        "NSLOTS": "3",
        "SGE_TASK_ID": "undefined",
    }


def test_a_job_is_read_from_its_environment(environ):
    allocation = read_allocation(environ)
    assert (allocation.job_id, allocation.job_name) == ("17", "train")
    assert [(host.name, host.slots) for host in allocation.hosts] == [("node1", 2), ("node2", 1)]


def test_a_task_of_an_array_job_has_its_number_in_the_job_id(environ):
    allocation = read_allocation({**environ, "SGE_TASK_ID": "3"})
    assert (allocation.job_id, allocation.job_number) == ("17.3", "17")


def test_slots_that_disagree_with_nslots_are_an_error_that_tells_both(environ):
    with pytest.raises(UserError, match="grants 3 slots, but NSLOTS is 4"):
        read_allocation({**environ, "NSLOTS": "4"})


@pytest.mark.parametrize("nslots", ["many", "-1", "3.0", "9" * 5000])
def test_nslots_that_is_no_number_is_named(environ, nslots):
    with pytest.raises(UserError, match=f"NSLOTS='{nslots}'"):
        read_allocation({**environ, "NSLOTS": nslots})


def test_without_nslots_the_file_counts(environ):
    del environ["NSLOTS"]
    assert len(read_allocation(environ).hosts) == 2


def test_outside_a_parallel_job_the_error_says_how_to_submit():
    with pytest.raises(UserError, match=r"(?s)qsub -pe .* tf_submit.py SCRIPT.*--local"):
        read_allocation({})


def test_a_host_file_that_cannot_be_read_is_named(environ, tmp_path):
    with pytest.raises(UserError, match=re.escape(f"{tmp_path}/gone: No such file")):
        read_allocation({**environ, "PE_HOSTFILE": f"{tmp_path}/gone"})


def test_a_host_file_of_bytes_is_a_malformed_one(environ, tmp_path):
    (tmp_path / "pe_hostfile").write_bytes(b"\xff\xfe\x00n1 1\n")
    with pytest.raises(UserError, match=r"pe_hostfile:1: .*is no host name"):
        read_allocation(environ)


def test_a_local_run_has_all_its_slots_on_this_machine():
    assert local_allocation(3, "example.py", "laptop").hosts == (Host("laptop", 3),)


# ---- parallel environments


def test_a_parallel_environment_is_read_as_qconf_prints_it():
    pe = parse_pe((FIXTURES / "ocs-qconf-sp.txt").read_text())
    assert (pe.name, pe.control_slaves, pe.job_is_first_task) == ("tight", True, False)
    assert (pe.master_forks_slaves, pe.daemon_forks_slaves) == (False, False)


def test_attributes_that_a_scheduler_does_not_have_keep_their_defaults():
    pe = parse_pe((FIXTURES / "sge-qconf-sp.txt").read_text())
    assert (pe.name, pe.master_forks_slaves, pe.daemon_forks_slaves) == ("tensorflow", False, False)


@pytest.mark.parametrize(
    "attribute", ["control_slaves", "job_is_first_task", "master_forks_slaves", "daemon_forks_slaves"]
)
@pytest.mark.parametrize(("value", "meaning"), [("TRUE", True), ("FALSE", False), ("true", True)])
def test_every_attribute_that_matters_is_read(attribute, value, meaning):
    assert getattr(parse_pe(f"pe_name  mpi\n{attribute}   {value}\n"), attribute) is meaning


def test_a_value_that_is_neither_true_nor_false_is_named_with_its_line():
    with pytest.raises(
        UserError, match="line 2: 'control_slaves maybe': control_slaves should be TRUE or FALSE"
    ):
        parse_pe("pe_name mpi\ncontrol_slaves maybe\n")


def test_without_an_answer_of_qconf_a_good_parallel_environment_is_assumed():
    assert parse_pe("").control_slaves


@given(
    st.text() | st.lists(st.sampled_from(["control_slaves", "TRUE", " ", "\n", "x", "pe_name"])).map("".join)
)
def test_any_text_is_a_parallel_environment_or_a_clear_error(text):
    try:
        pe = parse_pe(text)
    except UserError as error:
        assert "should be TRUE or FALSE" in str(error)
    else:
        assert isinstance(pe.control_slaves, bool)
