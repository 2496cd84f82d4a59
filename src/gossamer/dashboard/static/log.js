// Follows a log: takes at most 64 KiB at a time, and keeps the last 5,000 lines, or the last million characters of them.
"use strict";
(() => {
  const log = document.getElementById("log"), follow = document.getElementById("follow");
  if (!log || !log.dataset.log) return;
  const LINES = 5000, CHARACTERS = 1 << 20, PART = 65536, PAUSE_MS = 500, SHORT_PAUSE_MS = 20;
  document.getElementById("follow-label").hidden = false;
  let next = Number(log.dataset.next), decoder = new TextDecoder();
  const blocks = []; // parts of the log, each laid out by itself, so that a new one does not move the others
  let lines = 0, characters = 0;

  function append(block, text) {
    const count = text.split("\n").length - 1;
    block.element.append(text);
    block.lines += count;
    block.characters += text.length;
    block.isOpen = !text.endsWith("\n");
    lines += count;
    characters += text.length;
  }

  function begin(text) {
    const block = { element: document.createElement("div"), lines: 0, characters: 0 };
    blocks.push(block);
    append(block, text);
    log.append(block.element);
  }

  function show(text) {
    const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 40;
    const whole = text.split("\n");
    if (whole.length > LINES) text = whole.slice(-LINES).join("\n");
    const last = blocks.at(-1);
    let rest = text;
    if (last && last.isOpen) { // its line goes on
      const end = text.indexOf("\n") + 1 || (last.characters < PART ? text.length : 0);
      append(last, text.slice(0, end));
      rest = text.slice(end);
    }
    if (rest) begin(rest);
    while (blocks.length > 1 && (lines > LINES || characters > CHARACTERS)) {
      const first = blocks.shift();
      lines -= first.lines;
      characters -= first.characters;
      first.element.remove();
    }
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  // Returns how many bytes of the log the page has not shown yet.
  async function take(query) {
    const response = await fetch(`${log.dataset.log}&${query}`, { redirect: "manual" });
    if (response.type === "opaqueredirect") { location.reload(); return 0; }
    if (!response.ok) throw new Error(String(response.status));
    const bytes = new Uint8Array(await response.arrayBuffer());
    next = Number(response.headers.get("x-next-start")) || next + bytes.length;
    if (bytes.length) show(decoder.decode(bytes, { stream: true }));
    return Number(response.headers.get("x-log-length")) - next;
  }

  async function step() {
    const left = await take(`start=${next}`);
    if (left <= CHARACTERS) return left;
    decoder = new TextDecoder();
    show(`\n${log.dataset.skipped}\n`); // the page would not keep what is left out
    return take("end=1");
  }

  async function run() {
    const text = log.textContent;
    log.textContent = "";
    show(text);
    log.scrollTop = log.scrollHeight;
    for (;;) {
      let left = 0;
      if (document.visibilityState === "visible" && follow.checked) {
        const stale = document.getElementById("stale");
        try { left = await step(); stale.hidden = true; } catch { stale.hidden = false; }
      }
      await new Promise((done) => setTimeout(done, left > 0 ? SHORT_PAUSE_MS : PAUSE_MS));
    }
  }

  run();
})();
