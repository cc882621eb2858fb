"""A trajectory as one page of HTML that needs nothing else: no script, no address, every text escaped.

What an agent and its pages said is hostile. It is put in by a template that escapes all of it, and the page forbids
itself to run or to fetch anything; pictures stand in it as they were, with the place of a click drawn over them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jinja2 import Environment, StrictUndefined

from turnwise.errors import PictureLost, PictureRefused
from turnwise.pictures.reading import data_of_url, read_picture
from turnwise.trajectories.steps import AgentStory

MOST_OF_A_TEXT = 20_000
"""Characters of one text."""
MOST_PICTURES = 200
_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem; color: #1d2330 }
h1 { font-size: 1.3rem; overflow-wrap: anywhere } h2 { font-size: 1rem; margin: 2.2rem 0 .5rem }
pre { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; margin: .3rem 0;
  font: 13px/1.45 ui-monospace, monospace }
table { border-collapse: collapse } th, td { text-align: left; padding: .15rem 1rem .15rem 0; vertical-align: top }
th { font-weight: 600; color: #57606f } td { overflow-wrap: anywhere }
.step { border-top: 1px solid #d8dce4 } .thought { color: #57606f; border-left: 3px solid #d8dce4; padding-left: .7rem }
.call { background: #eef3fb; border-radius: 4px; padding: .2rem .5rem } .back { padding-left: 1.2rem; color: #35506f }
.small { color: #57606f; font-size: .85rem; margin: .5rem 0 0 } details { margin: .4rem 0 }
.good { color: #17713a } .bad { color: #a32626 }
.shot { position: relative; display: inline-block; max-width: 100%; border: 1px solid #d8dce4 }
.shot img { display: block; max-width: 100% } .shot svg { position: absolute; inset: 0; width: 100%; height: 100% }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p class="{{ 'good' if good else 'bad' }}">{{ verdict }}</p>
<table>{% for name, text in facts %}<tr><th>{{ name }}</th><td>{{ text }}</td></tr>{% endfor %}</table>
{% for role, text in story.before %}<details{{ ' open' if role == 'user' else '' }}><summary class="small">{{ role }}
</summary><pre>{{ cut(text) }}</pre></details>
{% endfor %}{% for step in story.steps %}<section class="step"><h2>Step {{ step.number }}</h2>
{% if step.saw %}<details><summary class="small">what it saw</summary><pre>{{ cut(step.saw) }}</pre></details>
{% endif %}{% if shots[loop.index0] %}{{ shot(shots[loop.index0], step.clicks) }}
{% endif %}{% if step.thought %}<p class="small">thought</p><pre class="thought">{{ cut(step.thought) }}</pre>
{% endif %}{% if step.said %}<p class="small">said</p><pre>{{ cut(step.said) }}</pre>
{% endif %}{% for name, given in step.calls %}<pre class="call">{{ cut(name) }} {{ cut(given) }}</pre>
{% if loop.index0 < step.feedback | length %}<pre class="back">{{ cut(step.feedback[loop.index0]) }}</pre>
{% endif %}{% endfor %}{% for text in step.feedback[step.calls | length:] %}<pre class="back">{{ cut(text) }}</pre>
{% endfor %}{% for text in step.notes %}<p class="small">{{ cut(text) }}</p>
{% endfor %}</section>
{% endfor %}{% if story.after %}<section class="step"><h2>After it</h2><pre>{{ cut(story.after) }}</pre></section>
{% endif %}{% for name, text in ends %}<section class="step"><h2>{{ name }}</h2><pre>{{ cut(text) }}</pre></section>
{% endfor %}{% if last %}<section class="step"><h2>The last pages, as the judge was shown them</h2>
{% for each in last %}{{ shot(each, []) }}
{% endfor %}</section>
{% endif %}</body>
</html>
"""
_SHOT = """{% macro shot(picture, clicks) %}<div class="shot"><img alt="what was in the window"
 width="{{ picture.width }}" src="{{ picture.url }}"><svg viewBox="0 0 {{ picture.width }} {{ picture.height }}">
{% for places in clicks %}{% if places | length > 1 %}<line x1="{{ places[0][0] }}" y1="{{ places[0][1] }}"
 x2="{{ places[1][0] }}" y2="{{ places[1][1] }}" stroke="#d4145a" stroke-width="3"/>{% endif %}
{% for x, y in places %}<circle class="click" cx="{{ x }}" cy="{{ y }}" r="14" fill="#d4145a" fill-opacity=".18"
 stroke="#d4145a" stroke-width="3"/><circle cx="{{ x }}" cy="{{ y }}" r="2.5" fill="#d4145a"/>{% endfor %}
{% endfor %}</svg></div>{% endmacro %}"""


@dataclass(frozen=True, slots=True)
class StoryPage:
    """What a page tells. ``facts``: in a table, ``ends``: behind the steps; both with their names. ``last``: the last
    pages as pictures."""

    title: str
    verdict: str
    good: bool
    facts: Sequence[tuple[str, str]]
    story: AgentStory
    ends: Sequence[tuple[str, str]] = ()
    last: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class _Shot:
    url: str
    width: int
    height: int


def as_page(told: StoryPage, stored: Callable[[str], bytes] | None = None) -> str:
    """The page. ``stored`` gives the bytes of a picture by its SHA-256, where there are such; it raises PictureLost for
    one that is gone, of which the page says so."""
    shots: list[_Shot | None] = []
    for step in told.story.steps:
        if step.picture is None:
            shots.append(None)
            continue
        found = _picture(step.picture, stored) if len([s for s in shots if s]) < MOST_PICTURES else "left out: too many"
        if isinstance(found, str):
            step.notes.append(f"(the picture is not shown: {found})")
        shots.append(found if isinstance(found, _Shot) else None)
    last = [shot for data in told.last if isinstance(shot := _shot(data), _Shot)]
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    template = environment.from_string(_SHOT + _TEMPLATE)
    page = template.render(
        title=told.title,
        verdict=told.verdict,
        good=told.good,
        facts=told.facts,
        story=told.story,
        ends=told.ends,
        shots=shots,
        last=last,
        cut=_cut,
    )
    return page.encode("utf-8", "replace").decode()


def data_url(data: bytes) -> str:
    """A picture as an address that has it whole; what it is, is read from itself."""
    return f"data:application/octet-stream;base64,{base64.b64encode(data).decode()}"


def _picture(url: str, stored: Callable[[str], bytes] | None) -> _Shot | str:
    """A picture to put in, or why it is not."""
    try:
        if url.startswith("sha256:"):
            if stored is None:
                return "it is kept elsewhere"
            return _shot(stored(url.removeprefix("sha256:")))
        return _shot(data_of_url(url))
    except (PictureLost, PictureRefused) as e:
        return str(e)


def _shot(data: bytes) -> _Shot | str:
    try:
        picture = read_picture(data)
    except PictureRefused as e:
        return str(e)
    url = f"data:{picture.kind};base64,{base64.b64encode(data).decode()}"
    return _Shot(url, picture.width, picture.height)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_OF_A_TEXT else f"{text[:MOST_OF_A_TEXT]}\n… ({len(text):,} characters)"
