"""Scripts that run in a page's isolated world: beside the page's own scripts, which can neither see nor change them."""

QUIET = """
(quiet, longest) => new Promise(done => {
  let timer = 0;
  const later = () => { clearTimeout(timer); timer = setTimeout(() => end(true), quiet); };
  const observer = new MutationObserver(later);
  const end = value => { clearTimeout(timer); observer.disconnect(); done(value); };
  observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  setTimeout(() => end(false), longest);
  later();
})
"""
"""Wait until the document has not changed for `quiet` milliseconds, at most `longest`. Returns whether it was quiet."""

SNAPSHOT = """
(url, limit) => {
  const root = document.documentElement;
  if (!root) return {html: '', cut: false};
  // Elements of an inert document start nothing: no constructor of a custom element, no image.
  const inert = document.implementation.createHTMLDocument('');
  const inline = (from, to, depth) => {
    const elements = from.querySelectorAll('*'), copies = to.querySelectorAll('*');
    const hosts = from.nodeType === 1 ? [[from, to]] : [];
    for (let at = 0; at < elements.length && at < copies.length; at++) {
      const name = elements[at].localName;
      if (elements[at].shadowRoot || name === 'iframe' || name === 'frame') hosts.push([elements[at], copies[at]]);
    }
    if (depth > 20) return;
    for (const [element, copy] of hosts) {
      if (element.shadowRoot) {
        const box = inert.createElement('div');
        box.setAttribute('data-shadow-root', '');
        for (const node of element.shadowRoot.childNodes) box.append(inert.importNode(node, true));
        inline(element.shadowRoot, box, depth + 1);
        copy.prepend(box);
      }
      let frame = null;
      try { frame = element.contentDocument; } catch {}
      if (frame && frame.body && (element.localName === 'iframe' || element.localName === 'frame')) {
        const box = inert.createElement('div');
        box.setAttribute('data-frame', frame.URL);
        const body = inert.importNode(frame.body, true);
        inline(frame.body, body, depth + 1);
        for (const linked of body.querySelectorAll('[href], [src], [action]')) {
          for (const attribute of ['href', 'src', 'action']) {
            const value = linked.getAttribute(attribute);
            if (value === null || value.startsWith('#')) continue;
            try { linked.setAttribute(attribute, new URL(value, frame.baseURI).href); } catch {}
          }
        }
        box.append(...body.childNodes);
        copy.after(box);
      }
    }
  };
  const copy = inert.importNode(root, true);
  inline(root, copy, 0);
  // Their content is for browsers without scripts.
  for (const element of copy.querySelectorAll('noscript')) element.remove();
  if (document.baseURI !== url && !document.querySelector('base[href]') && /^https?:/.test(document.baseURI)) {
    const base = inert.createElement('base');
    base.href = document.baseURI;
    (copy.querySelector('head') || copy).prepend(base);
  }
  const html = (document.doctype ? '<!DOCTYPE html>' : '') + copy.outerHTML;
  // The cut may leave half of a character.
  return {html: html.slice(0, limit).toWellFormed(), cut: html.length > limit};
}
"""
"""Return the document as it is now. Open shadow roots, and frames of the same origin, stand at their places as `div`
elements, because no parser of HTML would find their links inside templates and frames."""

_FIND = """
  // Elements of components and frames are looked for where the document itself has none.
  const find = (root, depth) => {
    const found = root.querySelector(selector);
    if (found || depth > 20) return found;
    for (const element of root.querySelectorAll('*')) {
      let inner = element.shadowRoot;
      if (element.localName === 'iframe') { try { inner = element.contentDocument; } catch {} }
      const below = inner && find(inner, depth + 1);
      if (below) return below;
    }
    return null;
  };
"""
"""Beginning of a function with the parameter `selector`."""

STEP = (
    "async (action, selector, value) => {"
    + _FIND
    + """
  const element = selector ? find(document, 0) : document.documentElement;
  if (!element) return false;
  if (action === 'scroll') {
    const before = document.documentElement.scrollHeight;
    // The page must see its end leave and come back: some load more only when it comes into view.
    window.scrollTo(0, 0);
    await new Promise(done => {
      setTimeout(done, 200);
      requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));
    });
    window.scrollTo(0, document.documentElement.scrollHeight);
    return before;
  }
  if (action === 'click' || action === 'consent') {
    if (element.disabled || !element.isConnected || element.hidden) return false;
    element.scrollIntoView();
    element.click();
  } else if (action === 'fill') {
    element.focus();
    // The setter of the element's class: frameworks replace that of the element itself.
    const setter = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(element), 'value');
    if (setter && setter.set) setter.set.call(element, value); else element.value = value;
    element.dispatchEvent(new Event('input', {bubbles: true}));
    element.dispatchEvent(new Event('change', {bubbles: true}));
  } else if (action === 'submit') {
    if (element.requestSubmit) element.requestSubmit(); else element.click();
  }
  return true;
}
"""
)
"""Take one step. Returns false if its element is not there or takes no clicks; of `scroll`, the height of the document
before."""
BOX = """
selector => {
  const root = document.documentElement, limit = (value, most) => Math.max(1, Math.min(Math.ceil(value), most));
  if (selector === 'page') {
    const height = Math.max(root.scrollHeight, window.innerHeight);
    const width = Math.max(root.scrollWidth, window.innerWidth);
    return {x: 0, y: 0, width: limit(width, 4096), height: limit(height, 16384)};
  }
  const element = document.querySelector(selector), box = element && element.getBoundingClientRect();
  if (!box || !box.width || !box.height) return null;
  return {x: Math.max(0, box.x + window.scrollX), y: Math.max(0, box.y + window.scrollY),
          width: limit(box.width, 4096), height: limit(box.height, 16384)};
}
"""
"""Return the place of a screenshot, in CSS pixels; null: there is no such element, or it is not shown."""
SIZE = "() => document.getElementsByTagName('*').length + ':' + document.documentElement.scrollHeight"
"""Return a text that changes when the document grows."""

TEXT = (
    "selector => {"
    + _FIND
    + "const found = find(document, 0); return found && (found.innerText ?? found.textContent) }"
)
"""Return the text of the first element that matches, as a reader sees it; null: there is none."""
