"""What agents, programs and quotations put into a message: tags, fences, brackets and markers, each to its last end."""

from __future__ import annotations

import pytest

from turnwise.judges.sources.visible import STOOD
from turnwise.judges.sources.wrappers import EMPHASIS, MAX_EMPHASIS, MAX_TAG, PERSONS, ROLES, without_blocks

WRONG = "It is wrong."


def left(text: str) -> str:
    """What stays, with single spaces, and without the marks of places where blocks stood."""
    kept = without_blocks(text, lambda _, at: at, lambda _, at: -1)
    return " ".join(kept.replace(STOOD, " ").split())


@pytest.mark.parametrize(
    ("text", "own"),
    [
        # A fence goes on to the last one of its kind, and without an end to the end of the text.
        ("No.\n```\nwrong\n```\nThanks.", "No. Thanks."),
        ("No.\n```py\nwrong\n```\nwrong\n```\nThanks.", "No. Thanks."),
        ("No.\n~~~\nwrong\n```\nwrong\n~~~\nThanks.", "No. Thanks."),
        ("No.\n'''\nwrong\n'''\nThanks.", "No. Thanks."),
        ('No.\n"""\nwrong\n"""\nThanks.', "No. Thanks."),
        ("No. ```wrong``` Thanks.", "No. Thanks."),
        ("No.\n```\nwrong", "No."),
        ("No. ```", "No."),
        ("No.\n  ```\nwrong\n  ```\nThanks.", "No. Thanks."),
        ("No ~~strike~~ and '' and \"\" here.", "No ~~strike~~ and '' and \"\" here."),
        # A span of code on one line stays, and what stands in it is no tag.
        ("Use `<div>` and `[a]` here.", "Use `<div>` and `[a]` here."),
        ("Use `a` <x>wrong</x> `b`.", "Use `a` `b`."),
        ("Use `` and <x>wrong</x> and ` here.", "Use `` and and ` here."),
        ("No.\nUse `<div>` here.\nThanks.", "No. Use `<div>` here. Thanks."),
        ("Use `a`<x>wrong</x> Thanks.", "Use `a` Thanks."),
        ("Use `<x>wrong\nwrong</x>` here.", "Use ` ` here."),
        ("Use ` here\n<x>wrong</x>` and.", "Use ` here ` and."),
        (f"Use `{'a' * 195} <x>` here.", f"Use `{'a' * 195}"),
        (f"Use `{'a' * 194} <x>` here.", f"Use `{'a' * 194} <x>` here."),
    ],
)
def test_fenced_text_goes_and_a_span_of_code_stays(text: str, own: str) -> None:
    assert left(text) == own
    assert left(text.replace(" Thanks.", "Thanks.")) == own


@pytest.mark.parametrize(
    ("text", "own"),
    [
        # Every tagged block goes, up to the last end of its kind.
        ("No. <x>wrong</x> Thanks.", "No. Thanks."),
        ("No. <x>wrong</x> wrong</x> Thanks.", "No. Thanks."),
        ("No. <X a='1'>wrong</x > Thanks.", "No. Thanks."),
        ("No. <a-b>wrong</a-b> <a.b>wrong</a.b> <a:b>wrong</a:b> <a_b>wrong</a_b> Thanks.", "No. Thanks."),
        ("No. <div>wrong</div> Thanks.", "No. Thanks."),
        ("No. <x>wrong <y>wrong</y> wrong</x> Thanks.", "No. Thanks."),
        ("No. <x>wrong", "No."),
        ("No. <x>wrong</x", "No."),
        ("No. <x\n a='1'>wrong</x> Thanks.", "No. Thanks."),
        ("No. <x>wrong</y> Thanks.", "No."),
        ("No.\n<x>\nwrong\n</x>\nThanks.", "No. Thanks."),
        # Alone, or without text: only the tag itself.
        ("No.<br>Thanks.", "No. Thanks."),
        ("No.<br/>Thanks.", "No. Thanks."),
        ("No.<x/>Thanks.", "No. Thanks."),
        ("No.<x a='1' />Thanks.", "No. Thanks."),
        ("No. <img src='x'> Thanks.", "No. Thanks."),
        # Cut off inside of the tag.
        ("No. <user_info it is wrong", "No."),
        ("No. <a:b it is wrong", "No."),
        ("No. <x it is </x", "No."),
        ("Use a <b and a >b.", "Use a <b and a >b."),
        ("Use a <b, not more.", "Use a <b, not more."),
        ("Use a < b and c > d.", "Use a < b and c > d."),
        ("Use a <3 and <-- and <= here.", "Use a <3 and <-- and <= here."),
        ("It is a<b.", "It is a<b."),
        (f"No. <a_b {'x' * MAX_TAG}> wrong", "No."),
        (f"No. <br {'x' * MAX_TAG}> so.", f"No. <br {'x' * MAX_TAG}> so."),
        # Tags in which agents set the person's own words hold them.
        ("<user_query>Too long.</user_query>", "Too long."),
        ("<x>wrong</x><user_query>Too long.</user_query>", "Too long."),
        ("Too long.</user_query> Thanks.", "Too long. Thanks."),
        ("Too long.</user_query", "Too long."),
        ("<feedback>Too long.", "Too long."),
        # The end of a block whose beginning we did not see.
        ("It is wrong.</x> Thanks.", ""),
        ("It is wrong.</x", ""),
        ("No.</b> Thanks.", "No. Thanks."),
        ("No.</br> Thanks.", "No. Thanks."),
        ("No.</think> Thanks.", "No. Thanks."),
        ("</b>No. <x>wrong</x> Thanks.", "No. Thanks."),
        ("No.</b> Use a > b.", "No. Use a > b."),
        (f"No.</b {'x' * MAX_TAG}> wrong", "No."),
        (f"No. <x>wrong</x {'x' * MAX_TAG}> wrong", "No."),
        ("Use </ and not </3.", "Use </ and not </3."),
        # A few words of the person's own are set in a tag.
        ("No, <b>much</b> shorter.", "No, much shorter."),
        ("No, <B>much</b> shorter.", "No, much shorter."),
        ("No, <em class='x'>much</em> shorter.", "No, much shorter."),
        ("Use <b> for it.", "Use <b> for it."),
        ("No, <b>wrong\nwrong</b> shorter.", "No, shorter."),
        ("No, <b>wrong <i>wrong</i></b> shorter.", "No, shorter."),
        (f"No, <b>{'x' * MAX_EMPHASIS}</b> shorter.", f"No, {'x' * MAX_EMPHASIS} shorter."),
        (f"No, <b>{'x' * (MAX_EMPHASIS + 1)}</b> shorter.", "No, shorter."),
        ("No, <b>a</b> and <b>b</b> shorter.", "No, a and b shorter."),
        ("No, <b>wrong</b > shorter.", "No, shorter."),
        ("No, <b>wrong</b", "No,"),
        ("Use <3.\nMake it <b>much</b> shorter.\nUse <3.", "Use <3. Make it much shorter. Use <3."),
        # A type with a parameter.
        ("Use List<String><x>wrong</x> Thanks.", "Use List<String> Thanks."),
        ("Use List<String> here.", "Use List<String> here."),
        ("Use List<user_info> wrong", "Use List"),
        ("Use List<String wrong> wrong", "Use List"),
        ("Use a <String> wrong", "Use a"),
        # An element that is named within a sentence.
        ("Use <div> tags.", "Use <div> tags."),
        ("Don't use this (<table> or <td>) here.", "Don't use this (<table> or <td>) here."),
        ("Use <p>, <li>! <h1>? Or <h2>; <td>", "Use <p>, <li>! <h1>? Or <h2>;"),
        ("A <div>. So.", "A <div>. So."),
        ("Use <div>.\nThanks.", "Use <div>. Thanks."),
        ("Use <span> for it", "Use <span> for it"),
        ("Use <div>.wrong", "Use"),
        ("Use <div> wrong", "Use"),
        ("Use:<div>. wrong", "Use:"),
        ("<div>. wrong", ""),
        ("Use\n<div>. wrong", "Use"),
        ("Use\n  <div>. wrong", "Use"),
        ("Use <div class='a'>. wrong", "Use"),
        ("Use <foo>. wrong", "Use"),
        # An address, or a sign of comparison.
        ("Mail <ann@example.org> then.", "Mail then."),
        ("Ann <a, b c> then.", "Ann then."),
        ("Mail Ann<ann@example.org> Thanks.", "Mail Ann Thanks."),
        ("Mail <ann@example.org> Thanks.", "Mail Thanks."),
        ("It is a > b, mail <ann@example.org> if c > d.", "It is a > b, mail if c > d."),
        ("No.\nAnn <a, b c> then.\nThanks.", "No. Ann then. Thanks."),
        ("See <[wrong](b) there.", "See < there."),
        ("It is a<b,c and d>e here.", "It is a<b,c and d>e here."),
        ("Ann <a,\nb> then.", "Ann <a, b> then."),
        (f"Mail <a@{'x' * 296}> then.", "Mail then."),
        (f"Mail <a@{'x' * 297}> then.", f"Mail <a@{'x' * 297}> then."),
        ("Use <@ann> then.", "Use <@ann> then."),
    ],
)
def test_what_stands_between_tags_goes_and_what_a_person_names_stays(text: str, own: str) -> None:
    assert left(text) == own
    assert left(text.replace(" Thanks.", "Thanks.")) == own


@pytest.mark.parametrize("tag", sorted(EMPHASIS))
def test_each_tag_of_emphasis_keeps_its_words(tag: str) -> None:
    assert left(f"No, <{tag}>much</{tag}> shorter.") == "No, much shorter."


@pytest.mark.parametrize("tag", sorted(PERSONS))
def test_each_tag_of_the_person_keeps_its_words(tag: str) -> None:
    assert left(f"<x>wrong</x>\n<{tag}>\nToo long.\n</{tag}>") == "Too long."


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("<|im_start|>user\nwrong", ""),
        ("No. <|im_end|> Thanks.", "No. Thanks."),
        ("No. <|im_end|>\n**Assistant** wrong", "No."),
        ("No. <|im_end|> userland is fine.", "No. userland is fine."),
        ("No. <|Assistant|> wrong", "No."),
        ("No. <|__assistant__|> wrong", "No."),
        ("No. <|other|> Thanks.", "No. Thanks."),
        ("No. <|a <|b|> c|> Thanks.", "No. Thanks."),
        ("No. <|a<|b<|c|>|>|> Thanks.", "No. Thanks."),
        ("No. <|a<|b<|c<|d|>|>|>|> no.", "No. <|a |> no."),
        ("No. <|a so.", "No. <|a so."),
        ("No. <|" + "x" * 197 + "|> no.", "No. no."),
        ("No. <|" + "x" * 198 + "|> no.", "No. <|" + "x" * 198 + "|> no."),
        ("No. <||> Thanks.", "No. Thanks."),
        ("No. <eos>X user no", "No. X user no"),
        ("No. <eos>user", "No."),
        ("<s>No.</s> So.", "No. So."),
        ("No. <bos> Thanks.", "No. Thanks."),
        ("No. <end_of_turn>\n<start_of_turn>model\nwrong", "No."),
        ("No. <start_of_turn>user wrong", "No."),
        ("No. <eos>" + " " * 36 + "user wrong", "No."),
        ("No. <eos>" + " " * 37 + "user no", "No. user no"),
        ("[INST]No.[/INST] Thanks.", "Thanks."),
        ("[INST] No.", "No."),
        ("No.[/INST] Thanks.", "No. Thanks."),
        ("No.[/INST", "No."),
        ("[a] No.[/INST] See [b].", "[a] No. See [b]."),
        ("No, [think twice] again.", "No, [think twice] again."),
        ("[INST]user: wrong", ""),
        ("<<SYS>>wrong<</SYS>> Thanks.", "Thanks."),
        ("<<SYS>>wrong<</SYS>>wrong<</SYS>> Thanks.", "Thanks."),
        ("No. <<SYS>> Thanks.", "No. Thanks."),
        ("No. <<SYS>>wrong<</SYS>> if a >> b.", "No. if a >> b."),
        ("<<SYS>>wrong<</SYS>> No. <x>wrong wrong</x> Thanks.", "No. Thanks."),
        ("<</SYS>>No. <x>wrong wrong</x> Thanks.", "No. Thanks."),
        ("No. <</SYS>> Thanks.", "No. Thanks."),
        ("No. <</SYS>> Thanks. <<SYS>> And more.", "No. Thanks. And more."),
    ],
)
def test_the_marks_of_a_chat_template_hold_nothing_but_before_a_role(text: str, own: str) -> None:
    assert left(text) == own
    assert left(text.replace(" Thanks.", "Thanks.")) == own


@pytest.mark.parametrize("role", ROLES)
def test_behind_a_mark_each_role_speaks(role: str) -> None:
    assert left(f"No. <|im_start|>{role}\n{WRONG}") == "No."
    assert left(f"No. <|{role.upper()}|>{WRONG}") == "No."
    assert left(f"No. <|im_end|>{role}s are fine.") == f"No. {role}s are fine."


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("No. <<<EXTERNAL>>>wrong<<<END>>> Thanks.", "No. Thanks."),
        ("No. <<<EXTERNAL>>>wrong>> wrong <<<END>>> Thanks.", "No. Thanks."),
        ("No. <<<EXTERNAL wrong>>> wrong", "No."),
        ("No. <<<EXTERNAL wrong", "No."),
        ("No. <<<A wrong >> wrong", "No."),
        ("No. <<A wrong>> Thanks.", "No. Thanks."),
        ("No. <<< wrong >>> Thanks.", "No. Thanks."),
        ("No. <<<1 wrong>> Thanks.", "No. Thanks."),
        ("No. <<EOF wrong>> Thanks.", "No. Thanks."),
        ("No. <<EOF wrong", "No."),
        ("Shift a << 3 >> b.", "Shift a << 3 >> b."),
        ("No. <!-- wrong --> wrong --> Thanks.", "No. Thanks."),
        ("No. <!-- wrong > wrong", "No."),
        ("No. <![CDATA[wrong > ]]> Thanks.", "No. Thanks."),
        ("No. <![CDATA[wrong > wrong", "No."),
        ("No. <!DOCTYPE html> Thanks.", "No. Thanks."),
        ("No. <?xml version='1'?> Thanks.", "No. Thanks."),
        ("No. <!DOCTYPE wrong", "No."),
    ],
)
def test_other_marks_in_angles_hold_all_up_to_their_last_end(text: str, own: str) -> None:
    assert left(text) == own
    assert left(text.replace(" Thanks.", "Thanks.")) == own


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("No. [x]wrong[/x] Thanks.", "No. Thanks."),
        ("No. [x]wrong[/x]wrong[/x] Thanks.", "No. Thanks."),
        ("No. [x a=1]wrong[/x] Thanks.", "No. Thanks."),
        ("[x]\nwrong\n[/x]\nThanks.", "Thanks."),
        ("No. [x]wrong[/y] Thanks.", ""),
        ("No.[/x] Thanks.", ""),
        ("No [x] and [/ or [/3] here.", "No [x] and [/ or [/3] here."),
        ("No. [Image: wrong [wrong]] Thanks.", "No. Thanks."),
        ("[Summary so far]\nwrong", ""),
        ("[Image #1] No.", "[Image #1] No."),
        ("See [Summary so far]\nThanks.", "See [Summary so far] Thanks."),
        # Links and images: their words are the page's.
        ("See [wrong](https://example.org) there.", "See there."),
        ("See [wrong [wrong] wrong](https://example.org) there.", "See there."),
        ("See ![wrong](a.png) there.", "See there."),
        ("See ![wrong\nwrong](a.png) there.", "See there."),
        ("See ![wrong: wrong](a.png) there.", "See there."),
        ("See [a\nb](c) there.", "See [a b](c) there."),
        ("See [a] there.\nSee [wrong](b) here.", "See [a] there. See here."),
        ("See ![wrong](a.png) a\nand b](c) here.", "See a and b](c) here."),
        ("See ![wrong\n](a) and\nb](c) here.", "See and b](c) here."),
        ("See [wrong](a and wrong", "See"),
        ("See [wrong](", "See"),
        ("See [a] there.\nSee [wrong](b) here.\nThanks.", "See [a] there. See here. Thanks."),
        (f"See [a] {'x' * MAX_TAG}](b)\nThanks.", f"See [a] {'x' * MAX_TAG}](b) Thanks."),
        ("[a\nb](c) is it!", "[a b](c) is it!"),
        ("See [![wrong](a.png)](https://example.org) there.", "See there."),
        ("See ![wrong [b](a) wrong](c.png) there.", "See there."),
        ("Use `[a](b)` for [c] there.", "Use `[a](b)` for [c] there."),
        ("Use `[a](b)` for ![wrong\nwrong](c) there.", "Use `[a](b)` for there."),
        (f"See ![wrong\n{'x' * MAX_TAG}](c) wrong", "See"),
        ("(So) see [wrong](b) there.", "(So) see there."),
        (f"See [wrong]({'x' * MAX_TAG}) wrong", "See"),
        ("See:[wrong](b) there.", "See: there."),
        ("See![wrong](a.png) Thanks.", "See Thanks."),
        ("See [`<x>`] there.", "See [`<x>`] there."),
        ("See ![wrong", "See"),
        ("See [a] (b) there.", "See [a] (b) there."),
        ("No! [wrong](b) there.", "No! there."),
    ],
)
def test_what_square_brackets_hold(text: str, own: str) -> None:
    assert left(text) == own
    assert left(text.replace(" Thanks.", "Thanks.")) == own
