"""A comparison as one page of HTML that needs nothing else: no script, no address, every text escaped.

Questions and answers are other people's words. They are put in by a template that escapes all of them, and the page
forbids itself to run or to fetch anything.
"""

from __future__ import annotations

from jinja2 import Environment, StrictUndefined

from turnwise.versions.comparing.compare import Comparison

_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ names | join(" and ") }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #1d2330 }
h1 { font-size: 1.4rem } h2 { font-size: 1rem; margin: 2rem 0 .5rem }
table { border-collapse: collapse } th, td { text-align: left; padding: .25rem 1.2rem .25rem 0; vertical-align: top }
th { font-weight: 600; color: #57606f } td.n { font-variant-numeric: tabular-nums }
.row { display: grid; grid-template-columns: repeat({{ names | length }}, 1fr); gap: 1rem }
.cell { border: 1px solid #d8dce4; border-radius: 6px; padding: .6rem .8rem }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: inherit; margin: 0 }
.small { color: #57606f; font-size: .85rem } .note { background: #fff6dd; padding: .5rem .8rem; border-radius: 6px }
</style>
</head>
<body>
<h1>{{ names | join(" and ") }}</h1>
{% for note in notes %}<p class="note">{{ note }}</p>
{% endfor %}<table>
<tr><th></th>{% for name in names %}<th>{{ name }}</th>{% endfor %}</tr>
{% for title, cells in figures %}<tr><th>{{ title }}</th>
{% for cell in cells %}<td class="n">{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table>
{% for asked, answers in rows %}<h2>{{ asked.about }}</h2>
<pre>{{ asked.question }}</pre>
<p class="small">a good answer: {{ asked.good }}</p>
<div class="row">{% for name, answer in answers %}<div class="cell"><p class="small">{{ name }}</p>
<pre>{{ answer.text }}</pre><p class="small">{{ answer.said }}</p></div>{% endfor %}</div>
{% endfor %}</body>
</html>
"""


def name_of(number: int) -> str:
    """A version as a person reads it."""
    return f"version {number}" if number else "the base model"


def figure_rows(found: Comparison) -> list[tuple[str, list[str]]]:
    """The figures of a comparison, each with a cell for each version."""
    sheets = found.sheets
    same = sum(len({answer.text for answer in answers}) == 1 for _, answers in found.rows)

    def cells(of: str, form: str) -> list[str]:
        return ["not known" if getattr(s, of) is None else form.format(getattr(s, of)) for s in sheets]

    return [
        ("tokens of an answer", cells("tokens", "{:.1f}")),
        ("answers that are the same in both", [f"{same} of {len(found.rows)}"] * len(sheets)),
        ("answers that ended by themselves", cells("ended", "{:.0%}")),
        ("4-grams that are repetitions", cells("repetition", "{:.1%}")),
        ("log-prob under the base model, nats per token", cells("base", "{:.2f}")),
        (
            "judges' verdicts on the turns it served",
            [f"{s.praised} good, {s.blamed} bad, {s.neutral} neither" for s in sheets],
        ),
        ("the person's own", [f"{s.person_praised} good, {s.person_blamed} bad" for s in sheets]),
    ]


def beside(tokens: int, ended: bool, repeated: float | None, base: float | None) -> str:
    """The figures of one answer, in a line."""
    said = [f"{tokens} token{'' if tokens == 1 else 's'}{'' if ended else ', cut off'}"]
    said += [f"{repeated:.0%} repeated"] if repeated else []
    said += [f"{base:.2f} nats per token under the base model"] if base is not None else []
    return ", ".join(said)


def as_html(found: Comparison) -> str:
    """The page."""
    names = [name_of(sheet.number) for sheet in found.sheets]
    rows = [
        (
            asked,
            [
                (name, {"text": a.text, "said": beside(a.tokens, a.ended, a.repetition, a.base)})
                for name, a in zip(names, answers, strict=True)
            ],
        )
        for asked, answers in found.rows
    ]
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_TEMPLATE)
    return template.render(names=names, notes=found.notes, figures=figure_rows(found), rows=rows)
