"""A CPU host: figures read as Linux shows them, and a line to mend each thing that is off."""

import pytest

from acceptance.devices import cpu
from acceptance.devices.cpu import Limits, Sample, Task, findings, host
from acceptance.evidence import Host

STAT = "cpu  100 5 50 800 10 3 2 30 40 0\ncpu0 50 2 25 400 5 1 1 15 20 0\n"
MEMORY = "MemTotal:  100 kB\nMemFree:  5 kB\nMemAvailable:  64 kB\n"
QUIET = Limits(
    load_milli_per_cpu_max=500,
    steal_ppm_max=10_000,
    memory_available_bytes_min=1 << 30,
    frequency_ppm_min=800_000,
    task_ppm_max=250_000,
)


def sample(**changes):
    fields = {
        "load_milli": 900,
        "all_ticks": 1000,
        "steal_ticks": 10,
        "cpus": 2,
        "memory_available_bytes": 4 << 30,
        "frequency_khz_min": 2_900_000,
        "frequency_khz_top": 3_000_000,
        "temperature_milli_c": 51_000,
        "throttle_events": 7,
        "tasks": {},
    }
    return Sample(**{**fields, **changes})


BEFORE = sample()
AFTER = sample(all_ticks=1400, steal_ticks=10)


def test_what_linux_shows_is_read():
    assert 1230 == cpu.parse_load("1.23 0.50 0.10 1/200 4711\n")
    # Ticks: 100+5+50+800+10+3+2+30; the guests' 40 are part of the first figure already.
    assert (1000, 30) == cpu.parse_stat(STAT)
    assert 64 * 1024 == cpu.parse_memory(MEMORY)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="no-file"),
        pytest.param("", id="empty"),
        pytest.param("x", id="other"),
        pytest.param("cpu 1 2", id="short"),
    ],
)
def test_what_can_not_be_read_is_unknown(text):
    assert cpu.parse_load(text) is None
    assert (None, None) == cpu.parse_stat(text)
    assert cpu.parse_memory(text) is None


def test_the_slowest_core_counts(tmp_path):
    for core, khz in enumerate((2_000_000, 1_500_000)):
        folder = tmp_path / f"cpu{core}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(f"{khz}\n")
        (folder / "cpuinfo_max_freq").write_text("3000000\n")

    assert (1_500_000, 3_000_000) == cpu.frequencies(tmp_path)
    assert (None, None) == cpu.frequencies(tmp_path / "nothing")


def test_a_fit_host_has_no_finding():
    assert () == findings(BEFORE, AFTER, QUIET)


def test_a_limit_that_is_reached_exactly_is_fit():
    after = sample(
        load_milli=1000,  # 500 on each of two CPUs
        all_ticks=2000,
        steal_ticks=20,  # 10 of 1000 ticks are 10,000 ppm
        memory_available_bytes=1 << 30,
        frequency_khz_min=2_400_000,  # 80 % of 3 GHz
    )

    assert () == findings(BEFORE, after, QUIET)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        pytest.param(
            {"load_milli": 1001}, "load: 1.00 on 2 CPUs, at most 1.00 is fit; end", id="load"
        ),
        pytest.param(
            {"all_ticks": 1400, "steal_ticks": 15},
            "steal: other guests took 1.25 % of the CPU time, at most 1.00 % is fit; use",
            id="steal",
        ),
        pytest.param(
            {"memory_available_bytes": (1 << 30) - 1},
            "memory: 1023 MiB available, 1024 MiB needed; end",
            id="memory",
        ),
        pytest.param(
            {"frequency_khz_min": 2_399_999},
            "frequency: slowest core at 2399 MHz of 3000 MHz; set",
            id="frequency",
        ),
        pytest.param({"load_milli": None}, "load: can't be read", id="load-unknown"),
        pytest.param({"steal_ticks": None}, "steal: can't be read", id="steal-unknown"),
        pytest.param(
            {"memory_available_bytes": None}, "memory: can't be read", id="memory-unknown"
        ),
        pytest.param(
            {"frequency_khz_min": None}, "frequency: can't be read", id="frequency-unknown"
        ),
    ],
)
def test_what_is_off_is_named_with_what_to_do(changes, line):
    (found,) = findings(BEFORE, sample(**{"all_ticks": 1400, **changes}), QUIET)

    assert str(found).startswith(line)


def test_no_time_between_two_samples_is_unknown_and_not_quiet():
    found = findings(BEFORE, BEFORE, QUIET)

    assert ["steal", "other processes"] == [finding.what for finding in found]


def test_a_limit_that_is_not_set_is_not_looked_at():
    worst = sample(load_milli=None, steal_ticks=None, memory_available_bytes=0)

    assert () == findings(worst, worst, Limits())


def test_a_heavy_process_is_named_by_pid_heaviest_first():
    # 400 ticks of two CPUs passed: 200 ticks are one whole CPU, a quarter of it is 50.
    old = {pid: Task(start_ticks=pid, cpu_ticks=100, command=f"job {pid}") for pid in range(1, 7)}
    new = {
        1: Task(start_ticks=1, cpu_ticks=150, command="job 1"),
        2: Task(start_ticks=2, cpu_ticks=151, command="job 2"),
        3: Task(start_ticks=3, cpu_ticks=300, command="job 3"),
        4: Task(start_ticks=99, cpu_ticks=900, command="another process, same pid"),
        5: Task(start_ticks=5, cpu_ticks=900, command="ours"),
        7: Task(start_ticks=7, cpu_ticks=900, command="new"),
    }
    before, after = sample(tasks=old), sample(tasks=new, all_ticks=1400)
    found = findings(before, after, QUIET, ours=[5])

    assert ["pid 3 uses 100 % of a CPU: job 3", "pid 2 uses 25 % of a CPU: job 2"] == [
        finding.found for finding in found
    ]


def test_the_rules_get_load_now_and_steal_in_between():
    after = sample(load_milli=1234, all_ticks=3000, steal_ticks=11, throttle_events=9)

    assert Host(
        load_milli=1234, steal_ppm=500, throttle_events=2, temperature_milli_c=51_000
    ) == host(BEFORE, after)


def test_the_rules_get_unknown_for_what_is_not_shown():
    blind = sample(
        load_milli=None, steal_ticks=None, throttle_events=None, temperature_milli_c=None
    )

    assert Host(
        load_milli=None, steal_ppm=None, throttle_events=None, temperature_milli_c=None
    ) == host(BEFORE, blind)


def test_this_host_can_be_sampled():
    found = cpu.sample(with_tasks=True)

    assert found.all_ticks > 0
    assert found.load_milli is not None
    assert 1 in found.tasks
    assert {} == cpu.sample().tasks
