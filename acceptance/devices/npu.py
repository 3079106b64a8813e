"""Answers of `npu-smi` -> values: dies, their health and use, and who runs on them (P2.1).

Not yet run on hardware: the formats are those of the samples in tests/data/npu-smi. What the tool
does not say is None, and an answer that is none is a ValueError: never free, never healthy.
"""

import os
import re
import subprocess
from dataclasses import dataclass
from itertools import pairwise

from acceptance.processes import all_processes, open_files

BUS_ID = re.compile(r"\b[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\b")
PAIR = re.compile(r"(\d+)\s*/\s*(\d+)")
VERSION = re.compile(r"npu-smi\s+(\S+)")
QUIET = re.compile(r"No running processes found in NPU\s+(\d+)")
UNSUPPORTED = "does not support"
DEVICE_FILES = re.compile(r"^/dev/(?:davinci\d+|davinci_manager|devmm_svm|hisi_hdc)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Die:
    """One die: `card` and `chip` as `npu-smi -i -c` takes them, `device` as in /dev/davinciN."""

    card: int
    chip: int
    device: int | None
    name: str
    health: str
    power_mw: int | None
    temperature_c: int | None
    aicore_percent: int | None
    hbm_used_mb: int
    hbm_total_mb: int

    @property
    def where(self) -> str:
        """For messages."""
        return f"NPU {self.card} chip {self.chip}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProcess:
    """A process on a card. `pid` is the host's, which a container can't see; `chip` None where
    the tool does not say it."""

    card: int
    chip: int | None
    pid: int
    name: str
    memory_mb: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """`npu-smi info`. `quiet_cards` said that nothing runs on them; a card that is in neither
    list said nothing, as in a container without rights."""

    version: str | None
    dies: tuple[Die, ...]
    processes: tuple[DeviceProcess, ...]
    quiet_cards: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One chip of `npu-smi info -t health`; `chip` None where one chip was asked for."""

    chip: int | None
    state: str
    error_code: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usages:
    """One chip of `npu-smi info -t usages`; None where this driver has no such line."""

    chip: int | None
    hbm_capacity_mb: int | None
    hbm_percent: int | None
    aicore_percent: int | None
    hbm_bandwidth_percent: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One row of `npu-smi info -m`; `logic_id` None for the controller (MCU)."""

    card: int
    chip: int
    logic_id: int | None
    device: int | None
    name: str


def parse_info(text: str) -> Info:
    """The two tables. ValueError where there is no die in the answer."""
    _refuse_empty(text)
    head, tail = _tables(text)
    version = VERSION.search(text)
    try:
        dies, processes = _dies(head), _processes(tail)
    except IndexError:
        raise ValueError("npu-smi info: a row of the answer is cut off") from None
    if not dies:
        raise ValueError(f"npu-smi info: no device in the answer: {text.strip()[:80]!r}")
    return Info(
        version=version.group(1) if version else None,
        dies=dies,
        processes=processes,
        quiet_cards=tuple(int(found) for found in QUIET.findall(text)),
    )


def _tables(text: str) -> tuple[list[str], list[str]]:
    """Rows of the device table and of the process table, the header of the second included."""
    rows = [line.strip() for line in text.splitlines() if line.strip().startswith("|")]
    begin = next((i for i, row in enumerate(rows) if "Process id" in row), len(rows))
    return rows[:begin], rows[begin:]


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def _dies(rows: list[str]) -> tuple[Die, ...]:
    """A die is the row with a bus id and the row before it, however many there are."""
    found = []
    for above, below in pairwise(rows):
        if not BUS_ID.search(below) or BUS_ID.search(above):
            continue
        first, second = _cells(above), _cells(below)
        card, _, name = first[0].partition(" ")
        places = second[0].split()
        used, total = PAIR.findall(second[-1])[-1]
        power, temperature, *_ = first[-1].split()
        found.append(
            Die(
                card=int(card),
                chip=int(places[0]),
                device=int(places[1]) if len(places) > 1 else None,
                name=name.strip(),
                health=first[1],
                power_mw=_milli(power),
                temperature_c=_number(temperature),
                aicore_percent=_number(second[-1].split()[0]),
                hbm_used_mb=int(used),
                hbm_total_mb=int(total),
            )
        )
    return tuple(found)


def _processes(rows: list[str]) -> tuple[DeviceProcess, ...]:
    """Columns by the header's names: some tools have no chip, some one more pid."""
    if not rows:
        return ()
    header = [cell.lower() for cell in _cells(rows[0])]
    has_chip = "chip" in header[0].split()
    columns = {name: header.index(name) for name in header}
    found = []
    for row in rows[1:]:
        cells = _cells(row)
        if len(cells) != len(header) or not cells[columns["process id"]].isdigit():
            continue
        places = cells[0].split()
        found.append(
            DeviceProcess(
                card=int(places[0]),
                chip=int(places[1]) if has_chip and len(places) > 1 else None,
                pid=int(cells[columns["process id"]]),
                name=cells[columns["process name"]],
                memory_mb=_number(cells[columns["process memory(mb)"]]),
            )
        )
    return tuple(found)


def parse_health(text: str) -> tuple[Health, ...]:
    """Both formats: a whole card chip by chip, or one chip with its error code."""
    found = []
    for block in _blocks(text, first="Chip ID"):
        state = block.get("Health") or block.get("Health Status")
        if state is None:
            continue
        code = block.get("Error Code")
        found.append(
            Health(
                chip=_number(block.get("Chip ID")),
                state=state,
                error_code=None if code in (None, "NA") else code,
            )
        )
    if not found:
        raise ValueError(f"npu-smi health: no state in the answer: {text.strip()[:80]!r}")
    return tuple(found)


def parse_usages(text: str) -> tuple[Usages, ...]:
    """Chip by chip; the chip's number closes its lines."""
    found = []
    for block in _blocks(text, last="Chip ID"):
        if "Aicore Usage Rate(%)" in block or "HBM Usage Rate(%)" in block:
            found.append(
                Usages(
                    chip=_number(block.get("Chip ID")),
                    hbm_capacity_mb=_number(block.get("HBM Capacity(MB)")),
                    hbm_percent=_number(block.get("HBM Usage Rate(%)")),
                    aicore_percent=_number(block.get("Aicore Usage Rate(%)")),
                    hbm_bandwidth_percent=_number(block.get("HBM Bandwidth Usage Rate(%)")),
                )
            )
    if not found:
        raise ValueError(f"npu-smi usages: no usage in the answer: {text.strip()[:80]!r}")
    return tuple(found)


def parse_mapping(text: str) -> tuple[Chip, ...]:
    """`npu-smi info -m`, columns by name; rows of unusable cards (-1) are left out."""
    _refuse_empty(text)
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]
    header, *rows = lines
    found = []
    for row in rows:
        cells = dict(zip(header, row, strict=False))
        card, chip = _number(cells.get("NPU ID")), _number(cells.get("Chip ID"))
        if card is None or chip is None or card < 0:
            continue
        found.append(
            Chip(
                card=card,
                chip=chip,
                logic_id=_number(cells.get("Chip Logic ID")),
                device=_number(cells.get("Chip Phy-ID")),
                name=cells.get("Chip Name", ""),
            )
        )
    return tuple(found)


def parse_remap(text: str) -> dict[str, int]:
    """`npu-smi info -t phyid-remap`: names as printed -> numbers."""
    (block,) = _blocks(text)
    return {name: int(value) for name, value in block.items() if value.isdigit()}


def _blocks(
    text: str, *, first: str | None = None, last: str | None = None
) -> list[dict[str, str]]:
    """Lines `name : value` in blocks, cut before each `first` or after each `last`."""
    _refuse_empty(text)
    blocks: list[dict[str, str]] = [{}]
    for line in text.splitlines():
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon:
            continue
        if name == first and blocks[-1]:
            blocks.append({})
        blocks[-1][name] = value
        if name == last:
            blocks.append({})
    return [block for block in blocks if block]


def _refuse_empty(text: str) -> None:
    """The tool answers that it can't with status 0."""
    if not text.strip() or UNSUPPORTED in text:
        raise ValueError(f"npu-smi gave no answer: {text.strip()[:80]!r}")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def _milli(text: str) -> int | None:
    found = re.fullmatch(r"(\d+)(?:\.(\d{1,3}))?", text)
    return int(found[1]) * 1000 + int((found[2] or "").ljust(3, "0")) if found else None


def ask(*arguments: str, timeout_s: float = 60) -> str | None:
    """What `npu-smi ARGUMENTS` prints; None if it is not there, fails, hangs or says nothing."""
    environment = {**os.environ, "LC_ALL": "C", "LANG": "C"}
    try:
        done = subprocess.run(
            ["npu-smi", *arguments],
            env=environment,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = done.stdout.decode(errors="replace")
    return text if done.returncode == 0 and text.strip() and UNSUPPORTED not in text else None


def holders() -> dict[int, tuple[str, ...]]:
    """Processes that hold device files open, by pid: a witness that does not ask the driver."""
    found = {}
    for process in all_processes():
        files = sorted({path for path in open_files(process.pid) if DEVICE_FILES.match(path)})
        if files:
            found[process.pid] = tuple(files)
    return found
