"""Source lines, and what they were inlined into."""

from tilescope.ptx import read_module
from tilescope.ptx.syntax import SourceLine


def sources(body, after="", before=""):
    """The source line of every instruction."""
    text = f".version 8.4 .target sm_90a {before}\n.entry k() {{\n{body}\n}}\n{after}"
    return [instruction.source for instruction in read_module(text).functions["k"].instructions]


def test_a_loc_holds_for_all_that_follows():
    assert sources("ret;\n.loc 1 7 3\nret; ret;\n.loc 1 9 0\nret;", after='.file 1 "kernel.py"') == [
        None,
        SourceLine("kernel.py", 7, 3),
        SourceLine("kernel.py", 7, 3),
        SourceLine("kernel.py", 9, 0),
    ]


def test_line_0_is_no_line():
    assert sources(".loc 1 7 3\nret;\n.loc 1 0 3\nret;", after='.file 1 "a.cu"') == [SourceLine("a.cu", 7, 3), None]


def test_a_files_name_is_the_last_part_of_its_path():
    assert sources(".loc 1 7 3\nret;", before='.file 1 "/home/me/a.cu", 1700000000, 512')[0].file == "a.cu"
    assert sources(".loc 1 7 3\nret;", before='.file 1 "C:\\\\work\\\\a.cu"')[0].file == "a.cu"
    assert sources(".loc 1 7 3\nret;", before='.file 1 "/home/me" "a.cu"')[0].file == "a.cu"


def test_files_that_share_their_name_keep_their_paths():
    files = '.file 1 "/x/a.cu"\n.file 2 "/y/a.cu"\n.file 3 "/x/b.cu"'
    read = sources(".loc 1 1 0\nret;\n.loc 2 2 0\nret;\n.loc 3 3 0\nret;", after=files)
    assert [source.file for source in read] == ["/x/a.cu", "/y/a.cu", "b.cu"]


def test_a_file_without_a_name_has_its_number():
    assert sources(".loc 5 7 3\nret;") == [SourceLine("file 5", 7, 3)]


def test_tritons_comment_says_what_was_inlined_and_names_the_file():
    (source,) = sources(".loc 2 170 27  // standard.py:170:27 @[ standard.py:191:40 @[ kernels.py:46:131 ] ]\nret;")
    assert source == SourceLine(
        "standard.py",
        170,
        27,
        inlined_at=SourceLine("standard.py", 191, 40, inlined_at=SourceLine("kernels.py", 46, 131)),
    )
    assert str(source) == "kernels.py:46 (standard.py:170)"


def test_a_line_names_the_call_in_the_kernels_file_between_the_kernel_and_the_library():
    (_, _, source) = sources(
        ".loc 1 63 5, function_name $L__info_string0, inlined_at 1 72 9\nret;\n"
        ".loc 3 20 5, function_name $L__info_string1, inlined_at 1 63 5\nret;\n"
        ".loc 3 170 5, function_name $L__info_string2, inlined_at 3 20 5\nret;"
    )
    kernel_line = SourceLine(source.outermost.file, 72, 9)
    assert source.outermost == kernel_line
    assert (source.innermost_of_kernel.file, source.innermost_of_kernel.line) == (kernel_line.file, 63)
    assert str(source) == f"{kernel_line.file}:72 ({kernel_line.file}:63, {source.file}:170)"


def test_a_comment_about_something_else_is_a_comment():
    assert sources(".loc 1 7 3 // a loop: 7 times\nret;\n.loc 1 8 0 // a.py:9:9 @[ b.py:1:1 ]\nret;") == [
        SourceLine("file 1", 7, 3),
        SourceLine("file 1", 8, 0),
    ]


def test_line_0_that_was_inlined_is_the_line_it_was_inlined_into():
    assert sources(".loc 2 0 0 // standard.py:0:0 @[ kernels.py:9:36 ]\nret;") == [SourceLine("kernels.py", 9, 36)]
    assert sources(".loc 1 9 3\n.loc 2 0 0, function_name F, inlined_at 1 9 3\nret;") == [SourceLine("file 1", 9, 3)]


def test_nvccs_inlining_is_a_chain_of_locs():
    (source,) = sources(
        """.loc 1 105 3
        .loc 2 10 1, function_name $L__info_string0, inlined_at 1 105 3
        .loc 3 20 2, function_name $L__info_string1, inlined_at 2 10 1
        ret;""",
        after='.file 1 "k.cu"\n.file 2 "a.h"\n.file 3 "b.h"\n',
    )
    assert source == SourceLine(
        "b.h", 20, 2, inlined_at=SourceLine("a.h", 10, 1, inlined_at=SourceLine("k.cu", 105, 3))
    )


def test_the_latest_loc_of_a_place_says_how_it_was_inlined():
    first, second = sources(
        """.loc 1 5 0
        .loc 2 10 1, function_name F, inlined_at 1 5 0
        .loc 3 20 2, function_name G, inlined_at 2 10 1
        ret;
        .loc 1 6 0
        .loc 2 10 1, function_name F, inlined_at 1 6 0
        .loc 3 20 2, function_name G, inlined_at 2 10 1
        exit;"""
    )
    assert (first.outermost.line, second.outermost.line) == (5, 6)


def test_functions_are_named_in_the_debug_strings():
    (source,) = sources(
        ".loc 1 5 0\n.loc 1 9 1, function_name $L__info_string0+2, inlined_at 1 5 0\nret;",
        after=".section .debug_str\n{\n$L__info_string0:\n.b8 95,90,110\n.b8 101,119,0\n$L__info_string1:\n.b8 0\n}",
    )
    assert source.function == "new"


def test_lines_of_an_inline_assembly_text_are_lines_of_its_first_loc():
    lines = sources(
        """.reg .b32 %r<2>;
        .reg .b64 %rd<2>;
        .loc 1 5 23
        // begin inline asm
        .loc 1 5 23
        mov.u32 %r1, 0;
        .loc 1 6 23
        ld.global.b32 { %r1 }, [ %rd1 ];
        // end inline asm
        // begin inline asm
        .loc 1 8 2
        mov.u32 %r1, 0;
        .loc 1 9 2
        mov.u32 %r1, 1;
        // end inline asm
        .loc 1 9 4
        ret;"""
    )
    assert [source.line for source in lines] == [5, 5, 8, 8, 9]
