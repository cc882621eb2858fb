"""What is asked of a page, as scripts. They run in a world of their own, where the page's own cannot change them.

A form, or the document, answers to the names of what is in it before its own (`form.tagName` is an input of that name).
So what they are is read by `R` (and done by `C`) through their kind; an element that cannot be read is left out.
Frames of the same site are read with the page (`INSIDE`); those of another one only say where they are.
"""

STATE = """
() => {
  const number = n => typeof n === 'number' && isFinite(n) ? n : 0;
  const cut = (t, n) => String(t === null || t === undefined ? '' : t).slice(0, n);
  const e = ACTIVE(), tag = TAG(e), all = R(document, 'documentElement');
  const root = R(document, 'scrollingElement') || all;
  const editable = !!e && (!!R(e, 'isContentEditable') || tag === 'TEXTAREA' || tag === 'SELECT' || FRAME(e) ||
    (tag === 'INPUT' && !['button', 'submit', 'reset', 'image', 'checkbox', 'radio', 'file'].includes(e.type)));
  const value = !e ? null : tag === 'SELECT' ? (e.selectedOptions[0] || {}).text : R(e, 'value') !== undefined ?
    R(e, 'value') : R(e, 'isContentEditable') ? R(e, 'innerText') : null;
  let inner = 0, fields = 0, seen = 0, text = 0, sum = 0;
  const count = d => {
    const whole = R(d, 'documentElement'), words = whole ? R(whole, 'textContent') : '';
    text += words.length;
    for (let n = Math.min(words.length, 200000); n--;) sum = (sum * 31 + words.charCodeAt(n)) % 1000003;
    for (const other of C(d, 'querySelectorAll', '*')) {
      if (++seen > 20000) break;
      try {
        inner += number(R(other, 'scrollTop')) + number(R(other, 'scrollLeft'));
        if (R(other, 'checked') || R(other, 'selected') || R(other, 'open')) fields += seen;
        if (INSIDE(other)) count(INSIDE(other));
      } catch { continue; }
    }
  };
  count(document);
  return { x: Math.round(root ? R(root, 'scrollLeft') : 0), y: Math.round(root ? R(root, 'scrollTop') : 0),
    inner: Math.round(inner), size: seen, fields, text: text * 1000003 + sum,
    editable, focus: SAY(e === R(document, 'body') ? null : e), value: value === null ? null : cut(value, 12000),
    title: cut(R(document, 'title'), 200) };
}
"""

TARGET = """
(x, y) => {
  const at = (d, x, y) => {
    const e = C(d, 'elementFromPoint', x, y);
    if (!e) return e;
    if (R(e, 'shadowRoot')) { const under = at(R(e, 'shadowRoot'), x, y); return under && under !== e ? under : e; }
    if (!INSIDE(e)) return e;
    const [left, top] = CORNER(e);
    return at(INSIDE(e), x - left, y - top) || e;
  };
  return SAY(at(document, x, y)); }
"""

SEEN = """
(mostLines, mostText) => {
  const lines = [], boxes = [], active = ACTIVE();
  const plain = PLAIN;
  const faint = new Map();
  const shown = e => {  // what of it, and of all that it stands in, lets through
    const open = [];
    let at = e;
    while (at && !faint.has(at)) {
      open.push(at);
      const root = C(at, 'getRootNode');
      at = R(at, 'assignedSlot') || R(at, 'parentElement') || R(root, 'host') || OUTSIDE(root);
    }
    let through = at ? faint.get(at) : 1;
    for (const each of open.reverse()) {
      const s = getComputedStyle(each);
      faint.set(each, through *= s.display === 'contents' ? 1 : +s.opacity);
    }
    return through;
  };
  const acts = e => C(e, 'matches', 'a[href],button,input,select,textarea,summary,option,label,[role],[onclick],' +
    '[tabindex],[contenteditable],svg *,canvas,img') || getComputedStyle(e).cursor === 'pointer';
  let left = 0, cut = 0;
  const one = (e, dx, dy, clip) => {
    if (R(e, 'shadowRoot')) visit(R(e, 'shadowRoot'), dx, dy, clip);
    const tag = TAG(e), frame = FRAME(e);
    if (['SCRIPT', 'STYLE', 'HEAD', 'META', 'LINK', 'TITLE', 'OPTION', 'HTML', 'BODY', 'DEFS'].includes(tag)) return;
    if (!frame && !plain(OWN(e)) && !acts(e)) return;
    const r = C(e, 'getBoundingClientRect');
    const box = [Math.max(r.left + dx, clip[0]), Math.max(r.top + dy, clip[1]),
      Math.min(r.right + dx, clip[2]), Math.min(r.bottom + dy, clip[3])];
    if (r.width < 1 || r.height < 1 || box[2] <= box[0] || box[3] <= box[1]) return;
    const s = getComputedStyle(e);
    if (s.visibility !== 'visible' || s.display === 'none' || shown(e) < 0.05) return;
    if (frame && INSIDE(e)) {
      const [x, y] = CORNER(e);
      visit(INSIDE(e), dx + x, dy + y, box);
      return;
    }
    const x = Math.min(Math.max(r.left + dx + r.width / 2, clip[0]), clip[2] - 1);
    const y = Math.min(Math.max(r.top + dy + r.height / 2, clip[1]), clip[3] - 1);
    if (lines.length >= mostLines) { cut++; return; }
    let line = SAY(e, mostText) + ` at (${Math.round(x)}, ${Math.round(y)})`;
    if (frame) line += ' (a page of another site in it, which is not read)';
    if (e === active) line += ' focused';
    if (tag === 'SELECT' && e.options) line += ' options: ' + [...e.options].slice(0, 30).map(
      o => `"${UNQUOTED(plain(o.text)).slice(0, 60)}"`).join(' | ');
    lines.push(line);
    boxes.push([...box, x, y, frame || acts(e) ? 1 : 0].map(Math.round));
  };
  const visit = (root, dx, dy, clip) => {
    for (const e of C(root, 'querySelectorAll', '*')) {
      if (++left > 20000) { cut++; return; }
      try { one(e, dx, dy, clip); } catch { cut++; }
    }
  };
  visit(document, 0, 0, [0, 0, innerWidth, innerHeight]);
  const root = R(document, 'scrollingElement') || R(document, 'documentElement');
  const of = n => root ? R(root, n) || 0 : 0;
  const title = UNQUOTED(plain(R(document, 'title'))).slice(0, 200);
  return { lines, boxes, cut, title, above: Math.round(of('scrollTop')),
    below: Math.max(0, Math.round(of('scrollHeight') - innerHeight - of('scrollTop'))) };
}
"""

_SAY = """
const kinds = new Map();
const R = (e, name) => {
  const kind = Object.getPrototypeOf(e);
  if (!kinds.has(kind)) kinds.set(kind, new Map());
  const known = kinds.get(kind);
  if (!known.has(name)) {
    let found = null;
    for (let p = kind; p && !found; p = Object.getPrototypeOf(p)) found = Object.getOwnPropertyDescriptor(p, name);
    known.set(name, found);
  }
  const d = known.get(name);
  return !d ? undefined : d.get ? d.get.call(e) : d.value;
};
const C = (e, name, ...given) => R(e, name).call(e, ...given);
const TAG = e => e ? String(R(e, 'tagName')).toUpperCase() : '';
const FRAME = e => ['IFRAME', 'FRAME'].includes(TAG(e));
const INSIDE = e => FRAME(e) ? R(e, 'contentDocument') || null : null;
const OUTSIDE = root => {
  const view = R(root, 'defaultView');
  try { return view ? view.frameElement : null; } catch { return null; }  // of another site
};
const CORNER = e => {
  const r = C(e, 'getBoundingClientRect');
  return [r.left + R(e, 'clientLeft'), r.top + R(e, 'clientTop')];
};
const ACTIVE = () => {
  let e = R(document, 'activeElement');
  for (let within; e; e = within) {
    const shadow = R(e, 'shadowRoot');
    within = (shadow && R(shadow, 'activeElement')) || (INSIDE(e) && R(INSIDE(e), 'activeElement'));
    if (!within) break;
  }
  return e;
};
const UNQUOTED = t => t.replace(/"/g, "'");
const WORD = t => t.toLowerCase().replace(/[^a-z0-9-]/g, '').slice(0, 30);
const PLAIN = t => String(t === null || t === undefined ? '' : t).replace(/[\\s\\x1c-\\x1f\\x85]+/g, ' ').trim();
const HAS_PLACE = e => {
  while (e && getComputedStyle(e).display === 'contents') e = R(e, 'parentElement');
  return !e || C(e, 'checkVisibility', { checkOpacity: true, checkVisibilityCSS: true });
};
const OWN = e => {  // the words that are its own; where it has a shadow, those that are let in there
  const shadow = R(e, 'shadowRoot'), in_place = n => {
    const slot = shadow && R(n, 'assignedSlot');
    return !shadow || (slot && HAS_PLACE(slot));
  };
  return [...R(e, 'childNodes')].filter(n => R(n, 'nodeType') === 3 && in_place(n)).map(n => n.data).join(' ');
};
const TEXT = e => {  // of all in it that is displayed
  const found = [], walker = C(document, 'createTreeWalker', e, 4);
  for (let n = 0, node; n < 500 && (node = walker.nextNode()); n++)
    if (HAS_PLACE(R(node, 'parentElement'))) found.push(node.data);
  return found.join(' ');
};
const SAY = (e, most = 80) => {
  try { return SAY_IT(e, most); } catch { return '<?>'; }
};
const SAY_IT = (e, most) => {
  if (!e || !R(e, 'tagName')) return null;
  const plain = t => UNQUOTED(PLAIN(t)).slice(0, most);
  const tag = WORD(R(e, 'tagName')), at = n => plain(C(e, 'getAttribute', n));
  const labels = R(e, 'labels'), parts = R(e, 'children').length, value = R(e, 'value');
  const named = labels && labels.length ? R(labels[0], 'textContent') : '';
  const words = tag === 'input' || tag === 'select' || tag === 'textarea' ? '' : parts ? OWN(e) : R(e, 'textContent');
  const name = at('aria-label') || plain(words) || at('alt') || at('placeholder') || at('title') || plain(named) ||
    at('name') || plain(parts && C(e, 'matches', 'a,button,[role]') ? TEXT(e) : '');
  let said = `<${tag}>`;
  if (tag === 'input') said += ' ' + (WORD(at('type')) || 'text');
  const role = WORD(at('role').split(' ')[0]);
  if (role) said += ` role=${role}`;
  if (name) said += ` "${name}"`;
  if (tag !== 'button' && typeof value === 'string' && value && !['checkbox', 'radio', 'password'].includes(
    R(e, 'type'))) said += ` value "${plain(tag === 'select' ? (e.selectedOptions[0] || {}).text : value)}"`;
  if (R(e, 'checked') || at('aria-checked') === 'true') said += ' checked';
  if (R(e, 'disabled')) said += ' disabled';
  if (tag === 'rect' || tag === 'circle' || tag === 'polygon' || tag === 'text' || tag === 'path') {
    const fill = at('fill'); if (fill) said += ` fill ${/^#?\\w+$/.test(fill) ? fill : `"${fill}"`}`;
  }
  return said;
};
"""


def with_arguments(script: str, *arguments: int) -> str:
    """A script as an expression that calls it."""
    return f"(() => {{ {_SAY} return ({script.strip()})({', '.join(map(str, arguments))}); }})()"
