"""The pre-flight of a host: several looks, one line for each thing that is off (P2.1, P6.7)."""

from pathlib import Path

from acceptance.devices import cpu
from acceptance.devices.npu_idle import Limits
from acceptance.devices.preflight import cpu_problems, npu_problems, wait_for_idle

DATA = Path(__file__).parent / "data/npu-smi"
IDLE = (DATA / "info-a3-idle.txt").read_text()
BUSY = IDLE.replace(
    "| 0           0    / 0          2974 ", "| 9           0    / 0          2974 "
)
A3 = Limits(dies=16)


class Host:
    """Answers of `npu-smi info` one after the other, the last one for ever; its own clock."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0
        self.time_s = 0.0

    def ask(self, *arguments):
        assert ("info",) == arguments
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def sleep(self, seconds):
        self.time_s += seconds

    def options(self):
        return {"ask": self.ask, "holders": dict, "sleep": self.sleep}


def test_three_idle_looks_some_seconds_apart_are_fit():
    host = Host(IDLE)

    assert () == npu_problems(A3, **host.options())
    assert (3, 4.0) == (host.asked, host.time_s)


def test_one_busy_look_among_three_is_enough():
    (line,) = npu_problems(A3, **Host(IDLE, IDLE, BUSY).options())

    assert line.startswith("NPU 1 chip 0 AICore: 9 %;")


def test_a_tool_that_does_not_answer_is_off():
    (line,) = npu_problems(A3, **Host(None).options())

    assert line.startswith("npu-smi: 3 of 3 samples could not be read;")


def test_a_table_that_is_cut_off_is_off_and_no_traceback():
    lines = npu_problems(A3, **Host("| 0  x | OK |\n| 0000:81:00.0 |").options())

    assert lines[0].startswith("npu-smi: 3 of 3 samples could not be read;")


def test_a_holder_of_device_files_is_off():
    options = {**Host(IDLE).options(), "holders": lambda: {7: ["/dev/davinci0"]}}

    assert ("device files are open: /dev/davinci0; see `ps -fp 7`; its owner must end it",) == (
        npu_problems(A3, **options)
    )


def test_a_stopped_service_has_some_time_to_leave_the_devices():
    host = Host(BUSY, BUSY, BUSY, BUSY, IDLE)

    assert () == wait_for_idle(A3, now=lambda: host.time_s, **host.options())
    # Two looks of two samples were busy, the third was idle: 2 s within and between each.
    assert (6, 10.0) == (host.asked, host.time_s)


def test_devices_that_are_never_left_are_told_when_the_time_is_up():
    host = Host(BUSY)
    (line,) = wait_for_idle(A3, timeout_s=9, now=lambda: host.time_s, **host.options())

    assert "NPU 1 chip 0 AICore" in line
    assert host.time_s >= 9


def test_a_cpu_host_is_looked_at_twice():
    host = Host("")
    shown = iter([1000, 1400])

    def sample(*, with_tasks):
        assert with_tasks
        return cpu.Sample(
            load_milli=5000,
            all_ticks=next(shown),
            steal_ticks=0,
            cpus=2,
            memory_available_bytes=1,
            frequency_khz_min=None,
            frequency_khz_top=None,
            temperature_milli_c=None,
            throttle_events=None,
            tasks={},
        )

    limits = cpu.Limits(load_milli_per_cpu_max=1000, steal_ppm_max=0, task_ppm_max=0)
    (line,) = cpu_problems(limits, sample=sample, sleep=host.sleep)

    assert line.startswith("load: 5.00 on 2 CPUs, at most 2.00 is fit;")
    assert 1.0 == host.time_s
