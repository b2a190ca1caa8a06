"""CUDA's errors: the table is CUDA's own, by its headers and by cuda.bindings; a pasted line's code is that code and no other."""

import importlib.util
import re
from pathlib import Path

import pytest
from cuda.bindings import driver, runtime

from tilescope.cli import run
from tilescope.cuda_error import CUDA_ERROR, codes_in, unknown_names_in
from tilescope.errors import RuleError
from tilescope.questions import topic_questions
from tilescope.symptoms import diagnose

DRIVER = {int(error): error.name for error in driver.CUresult}
RUNTIME = {int(error): error.name for error in runtime.cudaError_t}
ARCHITECTURES = (100, 101, 103)  # alone they are architectures: sm_100


def words_of(number):
    if number not in RUNTIME:
        return ""
    status, words = runtime.cudaGetErrorString(runtime.cudaError_t(number))
    assert status == 0
    return words.decode()


def test_numbers_names_and_words_are_those_of_cuda():
    ours = {row.number: (row.driver_name, row.runtime_name) for row in CUDA_ERROR.values()}
    assert ours == {number: (DRIVER.get(number, ""), RUNTIME.get(number, "")) for number in {*DRIVER, *RUNTIME}}
    assert {number: row.words for number, row in CUDA_ERROR.items()} == {number: words_of(number) for number in ours}
    assert all(row.meaning.endswith((".", ".)")) for row in CUDA_ERROR.values())


def enumerators(header, enum):
    """The numbers and names of an enumeration in a header of the CUDA wheels."""
    roots = map(Path, importlib.util.find_spec("nvidia").submodule_search_locations)
    text = next(path for root in roots for path in root.glob(f"*/include/{header}")).read_text("utf-8")
    body = text.partition(enum)[2].partition("\n}")[0]
    code = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    return {int(number): name for name, number in re.findall(r"(\w+)\s*=\s*(\d+)", code)}


@pytest.mark.parametrize(
    ("header", "enum", "column", "least"),
    [
        ("cuda.h", "typedef enum cudaError_enum", "driver_name", 100),
        ("driver_types.h", "enum __device_builtin__ cudaError\n", "runtime_name", 130),
    ],
)
def test_numbers_and_names_are_those_of_the_headers(header, enum, column, least):
    theirs = enumerators(header, enum)
    assert len(theirs) > least
    assert {number: getattr(CUDA_ERROR[number], column) for number in theirs} == theirs


def first_symptom(question):
    return topic_questions.find(question).symptoms[0]


@pytest.mark.parametrize("number", sorted({*DRIVER, *RUNTIME}))
def test_a_code_is_explained_as_that_code(number):
    written = [f"error {number}", f"CUDA error {hex(number)}", f"CUDA driver error ({number})", f"code={number}"]
    written += [f"Failed to initialize the TMA descriptor {number}", f"cuTensorMapEncodeTiled: CUresult = {number}"]
    written += [] if number in ARCHITECTURES else [str(number), hex(number)]
    written += [name for name in (DRIVER.get(number), RUNTIME.get(number)) if name]
    assert str(number) in first_symptom(written[0]).name
    for question in written:
        found = diagnose(question)
        assert codes_in(question) == ((number,), ()), question
        assert str(number) in found.symptoms[0].name, (question, found.symptoms[0].name)
        assert all(number in symptom.codes for symptom in found.symptoms if symptom.codes), question


@pytest.mark.parametrize("number", sorted(RUNTIME))
def test_cudas_own_words_lead_to_the_code(number):
    same = {other for other in RUNTIME if words_of(other) == words_of(number)}
    for question in (words_of(number), f"RuntimeError: CUDA error: {words_of(number)}"):
        assert same & set(diagnose(question).symptoms[0].codes), question


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("Failed to initialize the TMA descriptor 801", 801),
        ("Failed to initialize the TMA descriptor 999", 999),
        ("RuntimeError: CUDA driver error: 0x321", 801),
        ("cuTensorMapEncodeTiled failed with 801", 801),
        ("Triton Error [CUDA]: operation not supported", 801),
        ("I get 209 on B200", 209),
        ("CUDA error at gemm.cu:715 code=77(cudaErrorIllegalAddress)", 700),
        ("error 77: an illegal memory access was encountered", 700),
        ("700 error", 700),
    ],
)
def test_a_pasted_line_is_its_own_code(line, number):
    assert codes_in(line).known == (number,)
    assert str(number) in first_symptom(line).name


@pytest.mark.parametrize("code", [12345, 11, 750, 998, 0x7FFF])
@pytest.mark.parametrize(
    "line", ["Failed to initialize the TMA descriptor {}", "CUDA error {}", "error code: {}", "{}"]
)
def test_an_unknown_code_is_called_unknown(line, code, capsys):
    question = line.format(code)
    assert diagnose(question).unknown_codes == (code,)
    assert diagnose(question).symptoms == ()
    assert "unknown" in diagnose(question).text()
    assert run(["explain", question]) == 1
    said = capsys.readouterr().out
    assert f"error {code}" in said
    assert "unknown" in said


def test_an_unknown_name_is_called_unknown_with_the_nearest():
    assert unknown_names_in("CUDA_ERROR_NOT_SUPPORTED cudaError_t cudaErrorNotSuported") == ("cudaErrorNotSuported",)
    with pytest.raises(RuleError, match="Did you mean cudaErrorIllegalAddress"):
        topic_questions.find("cudaErrorIllegalAdres123")


@pytest.mark.parametrize(
    "line",
    [
        "N = 700 is wrong",
        "a tile of 200 rows is wrong",
        "max error 3",
        "relative error 1",
        "error 1e-3",
        "error 0.5",
        "Xid 31",
        "NVRM: Xid (PCI:0000:01:00): 31, MMU Fault",
        "exit code 139",
        "cublas error 13",
        "I get 200 GB/s",
        "2 stages right, error: 3 stages wrong",
        "CUDA 12.8 error",
        "hang after 700 iterations",
        "CUDA_EXCEPTION_99",
        "descriptor 0x4000004000010040",
        "no error but wrong results",
        "about 87.5% error",
        "the first 98 rows are wrong",
    ],
)
def test_other_numbers_are_no_codes(line):
    assert codes_in(line) == ((), ())


@pytest.mark.parametrize(
    ("exception", "number"),
    [
        ("Misaligned Address", 716),
        ("Illegal Instruction Parameter", 715),
        ("Illegal Instruction Encoding", 715),
        ("Out Of Range Address", 700),
        ("Invalid Address Space", 717),
        ("MMU Fault", 700),
        ("CTA Not Present", 719),
    ],
)
def test_a_log_of_a_warps_exception_is_that_error_first(exception, number):
    line = (
        "[  123.4] NVRM: Xid (PCI:0000:cb:00): 13, pid=715, name=python, Graphics SM Warp Exception on "
        f"(GPC 7, TPC 7, SM 0): {exception}"
    )
    more = "NVRM: Xid (PCI:0000:cb:00): 13, Graphics Exception: ESR 0x57c730=0xc04000b 0x57c734=0x24"
    for text in (line, f"{line}\n{more}", f"{more}\n{line}"):
        found = diagnose(text)
        assert found.symptoms[0].codes == (number,), [symptom.name for symptom in found.symptoms]
        assert "Xid 13" in [symptom.name for symptom in found.symptoms]


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("CUDA_EXCEPTION_14, Warp Illegal Address", 700),
        ("Program received signal CUDA_EXCEPTION_4", 715),
        ("CUDA_EXCEPTION_6", 716),
        ("CUDA_EXCEPTION_12: Warp Assert", 710),
        ("CUDA_EXCEPTION_5, Warp Out-of-range Address", 700),
        ("CUDA_EXCEPTION_7, Warp Invalid Address Space", 717),
        ("CUDA_EXCEPTION_17, Cluster target block not present", 719),
        ("CUDBG_EXCEPTION_CLUSTER_BLOCK_NOT_PRESENT", 719),
        ("CUDA Exception: Warp Misaligned Address", 716),
        ("CUDBG_EXCEPTION_WARP_ILLEGAL_ADDRESS", 700),
        ("Warp Illegal Instruction", 715),
    ],
)
def test_an_exception_of_the_debugger_is_the_error_it_ends_in(line, number):
    assert codes_in(line).known == (number,)


def test_a_log_without_an_exceptions_name_stays_xid_13():
    assert first_symptom("NVRM: Xid (PCI:0000:cb:00): 13, Graphics Exception: ESR 0x57c730=0xc04000b").name == "Xid 13"
