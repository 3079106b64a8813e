"""`npu-smi` as the samples show it: every die found, nothing taken for idle that is not."""

import os
from pathlib import Path

import pytest

from acceptance.devices import npu
from acceptance.devices.npu import (
    Chip,
    DeviceProcess,
    Die,
    Health,
    Usages,
    parse_health,
    parse_info,
    parse_mapping,
    parse_remap,
    parse_usages,
)
from acceptance.devices.npu_idle import Limits, findings

DATA = Path(__file__).parent / "data/npu-smi"
A3 = Limits(dies=16)


def text(name):
    return (DATA / name).read_text()


@pytest.fixture
def idle():
    return parse_info(text("info-a3-idle.txt"))


def test_a_busy_a3_host_is_read_die_by_die():
    info = parse_info(text("info-a3-busy.txt"))

    assert "25.5.1.1" == info.version
    assert [(0, 0, 0), (0, 1, 1), (1, 0, 2), (1, 1, 3)] == [
        (die.card, die.chip, die.device) for die in info.dies
    ]
    assert (
        Die(
            card=0,
            chip=0,
            device=0,
            name="Ascend910",
            health="OK",
            power_mw=161_900,
            temperature_c=42,
            aicore_percent=79,
            hbm_used_mb=60179,
            hbm_total_mb=65536,
        )
        == info.dies[0]
    )
    # The second die of a card shows no power of its own.
    assert (None, 81, 59861) == (
        info.dies[1].power_mw,
        info.dies[1].aicore_percent,
        info.dies[1].hbm_used_mb,
    )
    assert "Warning" == info.dies[2].health
    assert (
        DeviceProcess(card=0, chip=0, pid=152948, name="VLLM::Worker_DP0", memory_mb=57011),
        DeviceProcess(card=0, chip=1, pid=152949, name="VLLM::Worker_DP0", memory_mb=56690),
    ) == info.processes
    assert (1,) == info.quiet_cards


def test_an_a2_host_has_no_device_numbers_and_processes_without_chip():
    info = parse_info(text("info-a2.txt"))

    assert [(0, 0, None), (1, 0, None)] == [(d.card, d.chip, d.device) for d in info.dies]
    assert (96_100, 49, 3364) == (
        info.dies[0].power_mw,
        info.dies[0].temperature_c,
        info.dies[0].hbm_used_mb,
    )
    assert (
        DeviceProcess(card=1, chip=None, pid=2645952, name="VLLMWorker_DP", memory_mb=100596),
    ) == info.processes


def test_a_column_more_in_the_process_table_moves_nothing():
    info = parse_info(text("info-container-pid.txt"))

    assert (
        DeviceProcess(card=1, chip=0, pid=2645952, name="VLLM Worker", memory_mb=100596),
    ) == info.processes


def test_all_sixteen_dies_of_an_idle_host_are_found_and_nothing_is_off(idle):
    assert list(range(16)) == [die.device for die in idle.dies]
    assert tuple(range(8)) == idle.quiet_cards
    assert () == findings([idle, idle], {}, A3)


def test_a_busy_ill_and_short_host_is_told_line_by_line(idle):
    busy = parse_info(text("info-a3-busy.txt"))
    found = [str(finding) for finding in findings([busy], {}, A3)]

    assert any(line.startswith("devices: 4 dies are shown, 16 wanted;") for line in found)
    assert any(
        "NPU 1 chip 0 health: Warning; `npu-smi info -t health -i 1 -c 0`" in f for f in found
    )
    assert any("NPU 0 is taken: by VLLM::Worker_DP0, 57011 MB" in line for line in found)
    assert any("process 152949 of the host" in line for line in found)
    assert any("NPU 0 chip 0 memory: 60179 of 65536 MB used, listed" in line for line in found)
    assert any("NPU 0 chip 1 AICore: 81 %" in line for line in found)
    assert not any("NPU 1 chip 1" in line for line in found)
    assert all("\n" not in line for line in found)


def test_a_die_that_was_busy_in_one_of_three_samples_is_busy(idle):
    row = "| 0           0    / 0          2974 "
    busy = parse_info(text("info-a3-idle.txt").replace(row, row.replace("0", "7", 1)))

    (found,) = findings([idle, busy, idle], {}, A3)
    assert ("NPU 1 chip 0 AICore", "7 %") == (found.what, found.found)


def test_memory_without_an_owner_is_said_to_be_so(idle):
    held = parse_info(text("info-a3-idle.txt").replace(" 2874 /", "60179/"))

    (found,) = findings([held], {}, A3)
    assert "60179 of 65536 MB used, no owner is known" == found.found


def test_a_dropped_card_is_missed_although_all_others_are_idle():
    lines = text("info-a3-idle.txt").splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("| 7     Ascend910"))
    short = parse_info("\n".join(lines[:begin] + lines[begin + 6 :]))

    (found,) = findings([short], {}, A3)
    assert ("devices", "14 dies are shown, 16 wanted") == (found.what, found.found)


def test_a_container_that_can_not_see_processes_is_not_taken_for_idle():
    blind = parse_info(text("info-a3-container.txt"))

    assert 8 == len(findings([blind], {}, A3))
    assert "the tool does not say who runs there" == findings([blind], {}, A3)[0].found
    assert () == findings([blind], {}, Limits(dies=16, is_owner_told=False))


@pytest.mark.parametrize(
    "samples", [pytest.param([], id="none"), pytest.param([None], id="unreadable")]
)
def test_what_was_not_read_is_not_idle(samples):
    (found,) = findings(samples, {}, A3)

    assert f"{len(samples)} of {len(samples)} samples could not be read" == found.found


def test_one_unreadable_sample_among_good_ones_is_off(idle):
    assert 1 == len(findings([idle, None], {}, A3))


def test_a_holder_of_device_files_is_named(idle):
    (found,) = findings([idle], {4711: ("/dev/davinci0", "/dev/hisi_hdc")}, A3)

    assert ("/dev/davinci0, /dev/hisi_hdc", "see `ps -fp 4711`; its owner must end it") == (
        found.found,
        found.fix,
    )


def test_heat_is_a_limit_of_the_profile(idle):
    limits = Limits(dies=16, temperature_c_max=44)
    unknown = parse_info(text("info-a3-idle.txt").replace("161.9       38", "161.9       - "))

    assert ["NPU 7 chip 0 temperature", "NPU 7 chip 1 temperature"] == [
        finding.what for finding in findings([idle], {}, limits)
    ]
    assert "unknown" == findings([unknown], {}, limits)[0].found


def test_health_is_read_in_both_formats():
    assert (Health(chip=0, state="OK", error_code=None),) == parse_health(text("health-card.txt"))
    assert (Health(chip=None, state="OK", error_code=None),) == parse_health(
        text("health-chip-ok.txt")
    )
    assert (Health(chip=None, state="Alarm", error_code="80E01801"),) == parse_health(
        text("health-chip-alarm.txt")
    )


def test_usages_are_read_chip_by_chip():
    assert (
        Usages(
            chip=0, hbm_capacity_mb=65536, hbm_percent=4, aicore_percent=0, hbm_bandwidth_percent=0
        ),
        Usages(
            chip=1,
            hbm_capacity_mb=65536,
            hbm_percent=92,
            aicore_percent=81,
            hbm_bandwidth_percent=73,
        ),
    ) == parse_usages(text("usages.txt"))


@pytest.mark.parametrize(
    ("name", "chips"),
    [
        pytest.param(
            "mapping-phy.txt",
            [(0, 0, 0, 0, "Ascend910"), (0, 1, 1, 1, "Ascend910"), (0, 2, None, None, "Mcu")],
            id="with-phy-id",
        ),
        pytest.param(
            "mapping-logic.txt",
            [
                (0, 0, 0, None, "Ascend 910B3"),
                (1, 0, 1, None, "Ascend 910B3"),
                (1, 1, None, None, "Mcu"),
            ],
            id="without-phy-id",
        ),
        pytest.param(
            "mapping-slot.txt", [(2, 0, None, None, "Ascend910")], id="slot-and-unusable-card"
        ),
    ],
)
def test_the_mapping_is_read_by_its_header(name, chips):
    assert chips == [
        (chip.card, chip.chip, chip.logic_id, chip.device, chip.name)
        for chip in parse_mapping(text(name))
    ]
    assert all(isinstance(chip, Chip) for chip in parse_mapping(text(name)))


def test_the_remap_has_no_blank_after_its_colon():
    assert {
        "Chip Physical ID": 3,
        "Chip Logic ID": 3,
        "NPU ID": 1,
        "Chip ID": 1,
    } == parse_remap(text("phyid-remap.txt"))


@pytest.mark.parametrize(
    "parse",
    [
        pytest.param(parse_info, id="info"),
        pytest.param(parse_health, id="health"),
        pytest.param(parse_usages, id="usages"),
        pytest.param(parse_mapping, id="mapping"),
        pytest.param(parse_remap, id="remap"),
    ],
)
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("", id="empty"),
        pytest.param("This device does not support querying proc-mem.\n", id="unsupported"),
    ],
)
def test_an_answer_that_is_none_is_refused(parse, answer):
    with pytest.raises(ValueError, match="npu-smi"):
        parse(answer)


def test_a_table_without_devices_is_refused():
    with pytest.raises(ValueError, match="no device in the answer"):
        parse_info("| npu-smi 25.5.1.1   Version: 25.5.1.1 |\n")


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """A program called npu-smi that does what the test says."""

    def make(script):
        program = tmp_path / "npu-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return make


def test_the_tool_is_asked_in_a_plain_language(tool):
    tool('echo "$LC_ALL $*"')

    assert "C info -t health\n" == npu.ask("info", "-t", "health")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("echo good; exit 1", id="status"),
        pytest.param("exit 0", id="empty"),
        pytest.param("echo This device does not support querying it.", id="unsupported"),
        pytest.param("exec sleep 3600", id="hangs"),
    ],
)
def test_a_tool_that_fails_says_nothing(tool, script):
    tool(script)

    assert npu.ask("info", timeout_s=0.2) is None


def test_a_host_without_the_tool_says_nothing(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")

    assert npu.ask("info") is None


def test_holders_of_device_files_are_found(monkeypatch):
    files = {os.getpid(): ["/dev/davinci3", "/dev/null", "/dev/davinci_manager", "/dev/davinci3"]}
    monkeypatch.setattr(npu, "open_files", lambda pid: files.get(pid, []))

    assert {os.getpid(): ("/dev/davinci3", "/dev/davinci_manager")} == npu.holders()
