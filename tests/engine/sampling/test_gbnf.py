"""GBNF becomes Lark that means the same, in time linear in the text, with errors that say where."""

import time

import pytest

from engine.errors import EngineError
from engine.sampling.gbnf import MAX_NESTING, gbnf_to_lark
from tests.fakes.grammars import takes

JSON = r"""root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space
ws ::= | " " | "\n" [ \t]{0,20}
"""

ARITHMETIC = r"""root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"""


@pytest.mark.parametrize(
    ("grammar", "text", "is_taken"),
    [
        (JSON, '{"a": [1, -2.5e3, {"b": "x\\n\\u00e9"}], "c": null}', True),
        (JSON, "{}", True),
        (JSON, '{"a": }', False),
        (JSON, '{"a": 01}', False),
        (ARITHMETIC, "x+2*(a -3)= y\n", True),
        (ARITHMETIC, "x=1\ny1*2=z\n", True),
        (ARITHMETIC, "x=1", False),
        (r'root ::= "\x41\u0042\U00000043" [\u4e00-\u9fff]', "ABC中", True),
        (r'root ::= [^\]/^-]+ "é\"\\"', 'ab"é"\\', True),
        (r"root ::= [a\]-]{2,3}", "a]-", True),
        (r"root ::= [a\]-]{2,3}", "a", False),
        ('root ::= "a"{2} "b"{1,} "c"?', "aabb", True),
        ('root ::= "a"{2} "b"{1,} "c"?', "abb", False),
        ("root ::= .", "\n", True),
        ('root ::= "a" | # or\n  "b"\n', "b", True),
        ("root ::= a-b a_b\na-b ::= [x]\na_b ::= [y]", "xy", True),
        ('root ::= start\nstart ::= "a" start | "b"', "aab", True),
        ('root ::= ("ab" | [a-z])+ "abd"', "aabd", True),
        ('root ::= "ab" "c" | x x "d"\nx ::= [a-z]', "abd", True),
        ('root ::= "```" [a-z `]+ "```"', "```ab``c```", True),
        ('root ::= "" | "a"', "", True),
        ('root ::= (("a" | "b")\n"c")*', "acbc", True),
    ],
)
def test_a_text_fits_as_in_llama_cpp(grammar: str, text: str, is_taken: bool) -> None:
    """Each element, escape and repetition means what it means there, also where a longer word could be swallowed."""
    assert takes("gbnf", grammar, text) == is_taken


@pytest.mark.parametrize(
    ("grammar", "where", "why"),
    [
        ('root ::= "a" foo', "line 1, column 14", "there is no rule foo"),
        ('root ::= ("a"', "line 1, column 14", "expected )"),
        ("", "line 1, column 1", "there is no rule root"),
        ('x ::= "a"', "line 1, column 1", "there is no rule root"),
        ('root ::= "a"\nroot ::= "b"', "line 2, column 1", "stands here again"),
        ('root ::= x\nx ::= "a\n', "line 2, column 7", "has no end"),
        ("root ::= [", "line 1, column 10", "has no end"),
        ("root ::= []", "line 1, column 10", "is empty"),
        ('root ::= "a" $', "line 1, column 14", "expected an element"),
        (r'root ::= "\q"', "line 1, column 11", "unknown escape"),
        (r'root ::= "\ud800"', "line 1, column 11", "no character"),
        ('root = "a"', "line 1, column 6", "expected ::="),
        ('root ::= "a"{x}', "line 1, column 13", "expected {count}"),
        ("?", "line 1, column 1", "expected the name of a rule"),
        ("root ::= " + "(" * (MAX_NESTING + 1), f"line 1, column {10 + MAX_NESTING}", "parentheses"),
    ],
)
def test_an_error_says_where(grammar: str, where: str, why: str) -> None:
    """Line, column and reason of what cannot be read."""
    with pytest.raises(EngineError) as caught:
        gbnf_to_lark(grammar)
    assert where in caught.value.message
    assert why in caught.value.message
    assert caught.value.param == "grammar"


def test_a_long_grammar_takes_linear_time() -> None:
    """A chain of 10,000 rules is read in well under the seconds that a quadratic pass needs."""
    rules = "\n".join(f'r{index} ::= "a" r{index + 1}' for index in range(10_000))
    began_at = time.process_time()
    lark = gbnf_to_lark(f'root ::= r0\n{rules}\nr10000 ::= "b"\n')
    assert lark.count("\n") == 10_004
    assert time.process_time() - began_at < 3
