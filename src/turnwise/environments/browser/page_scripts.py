"""What is asked of a page, as scripts. They run in a world of their own, where the page's own cannot change them."""

STATE = """
() => {
  const deep = () => { let e = document.activeElement;
    while (e && e.shadowRoot && e.shadowRoot.activeElement) e = e.shadowRoot.activeElement; return e; };
  const e = deep(), root = document.scrollingElement || document.documentElement;
  const editable = !!e && (e.isContentEditable || e.tagName === 'TEXTAREA' || e.tagName === 'SELECT' ||
    (e.tagName === 'INPUT' && !['button', 'submit', 'reset', 'image', 'checkbox', 'radio', 'file'].includes(e.type)));
  const cut = (t, n) => (t || '').slice(0, n);
  const value = !e ? null : e.tagName === 'SELECT' ? (e.selectedOptions[0] || {}).text : 'value' in e ? e.value :
    e.isContentEditable ? e.innerText : null;
  let inner = 0, fields = 0, seen = 0;
  for (const other of document.querySelectorAll('*')) {
    if (++seen > 20000) break;
    inner += other.scrollTop + other.scrollLeft;
    if (other.checked || other.selected || other.open) fields += seen;
  }
  return { x: Math.round(root ? root.scrollLeft : 0), y: Math.round(root ? root.scrollTop : 0),
    inner: Math.round(inner), size: seen, fields,
    text: (document.documentElement ? document.documentElement.textContent : '').length,
    editable, focus: SAY(e === document.body ? null : e), value: value === null ? null : cut(value, 2000),
    title: cut(document.title, 200) };
}
"""

TARGET = """
(x, y) => { let e = document.elementFromPoint(x, y);
  while (e && e.shadowRoot) { const d = e.shadowRoot.elementFromPoint(x, y); if (!d || d === e) break; e = d; }
  return SAY(e); }
"""

SEEN = """
(mostLines, mostText) => {
  const lines = [], active = document.activeElement;
  const plain = t => (t || '').replace(/\\s+/g, ' ').trim();
  const own = e => plain([...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join(' '));
  const acts = e => e.matches('a[href],button,input,select,textarea,summary,option,label,[role],[onclick],[tabindex],' +
    '[contenteditable],svg *,canvas,img') || getComputedStyle(e).cursor === 'pointer';
  let left = 0, cut = 0;
  const visit = (root) => {
    for (const e of root.querySelectorAll('*')) {
      if (++left > 20000) { cut++; return; }
      if (e.shadowRoot) visit(e.shadowRoot);
      if (['SCRIPT', 'STYLE', 'HEAD', 'META', 'LINK', 'TITLE', 'OPTION', 'HTML', 'BODY', 'DEFS'].includes(
        e.tagName.toUpperCase())) continue;
      const text = own(e), active_ = acts(e);
      if (!text && !active_) continue;
      const r = e.getBoundingClientRect();
      if (r.width < 1 || r.height < 1 || r.bottom <= 0 || r.right <= 0 || r.top >= innerHeight || r.left >= innerWidth)
        continue;
      const s = getComputedStyle(e);
      if (s.visibility !== 'visible' || s.display === 'none' || +s.opacity < 0.05) continue;
      const x = Math.min(Math.max(r.left + r.width / 2, 0), innerWidth - 1);
      const y = Math.min(Math.max(r.top + r.height / 2, 0), innerHeight - 1);
      if (lines.length >= mostLines) { cut++; continue; }
      let line = SAY(e, mostText) + ` at (${Math.round(x)}, ${Math.round(y)})`;
      if (e === active) line += ' focused';
      if (e.tagName === 'SELECT') line += ' options: ' + [...e.options].slice(0, 30).map(o => plain(o.text).slice(0, 60)
        ).join(' | ');
      lines.push(line);
    }
  };
  visit(document);
  const root = document.scrollingElement || document.documentElement;
  return { lines, cut, title: plain(document.title).slice(0, 200),
    above: Math.round(root.scrollTop),
    below: Math.max(0, Math.round(root.scrollHeight - innerHeight - root.scrollTop)) };
}
"""

_SAY = """
const SAY = (e, most = 80) => {
  if (!e || !e.tagName) return null;
  const plain = t => String(t === null || t === undefined ? '' : t).replace(/\\s+/g, ' ').trim().slice(0, most);
  const tag = e.tagName.toLowerCase(), at = n => plain(e.getAttribute && e.getAttribute(n));
  const named = e.labels && e.labels.length ? e.labels[0].textContent : '';
  const words = tag === 'input' || tag === 'select' || tag === 'textarea' ? '' :
    e.children.length ? [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join(' ') : e.textContent;
  const name = at('aria-label') || plain(words) || at('alt') || at('placeholder') || at('title') || plain(named) ||
    at('name') || plain(e.children.length && e.matches('a,button,[role]') ? e.textContent : '');
  let said = `<${tag}>`;
  if (tag === 'input') said += ' ' + (at('type') || 'text');
  if (at('role')) said += ` role=${at('role')}`;
  if (name) said += ` "${name}"`;
  if (tag !== 'button' && typeof e.value === 'string' && e.value && !['checkbox', 'radio', 'password'].includes(e.type))
    said += ` value "${plain(tag === 'select' ? (e.selectedOptions[0] || {}).text : e.value)}"`;
  if (e.checked || at('aria-checked') === 'true') said += ' checked';
  if (e.disabled) said += ' disabled';
  if (tag === 'rect' || tag === 'circle' || tag === 'polygon' || tag === 'text' || tag === 'path') {
    const fill = at('fill'); if (fill) said += ` fill ${fill}`;
  }
  return said;
};
"""


def with_arguments(script: str, *arguments: int) -> str:
    """A script as an expression that calls it."""
    return f"(() => {{ {_SAY} return ({script.strip()})({', '.join(map(str, arguments))}); }})()"
