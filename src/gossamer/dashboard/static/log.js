// Follows a log: takes at most 64 KiB at a time, and keeps at most so many lines on the page.
"use strict";
(() => {
  const log = document.getElementById("log"), follow = document.getElementById("follow");
  if (!log || !log.dataset.log) return;
  const LINES = 5000, PART = 65536, PAUSE_MS = 500, BEHIND = 20;
  document.getElementById("follow-label").hidden = false;
  let next = Number(log.dataset.next), full = 0;
  const decoder = new TextDecoder();
  let lines = log.textContent.split("\n").length;

  function cut() {
    if (lines <= LINES) return;
    const kept = log.textContent.split("\n").slice(-LINES);
    log.textContent = kept.join("\n");
    lines = kept.length;
  }

  function add(text) {
    const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 40;
    log.append(text);
    lines += text.split("\n").length - 1;
    cut();
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  async function take(query) {
    const response = await fetch(`${log.dataset.log}&${query}`, { redirect: "manual" });
    if (response.type === "opaqueredirect") { location.reload(); return 0; }
    if (!response.ok) throw new Error(String(response.status));
    const bytes = new Uint8Array(await response.arrayBuffer());
    next = Number(response.headers.get("x-next-start")) || next + bytes.length;
    if (bytes.length) add(decoder.decode(bytes, { stream: true }));
    return bytes.length;
  }

  async function step() {
    const length = await take(`start=${next}`);
    full = length === PART ? full + 1 : 0;
    if (full < BEHIND) return length === PART;
    add(`\n${log.dataset.skipped}\n`); // the log grows faster than a page can show it
    await take("end=1");
    full = 0;
    return false;
  }

  async function run() {
    log.scrollTop = log.scrollHeight;
    for (;;) {
      let more = false;
      if (document.visibilityState === "visible" && follow.checked) {
        const stale = document.getElementById("stale");
        try { more = await step(); stale.hidden = true; } catch { stale.hidden = false; }
      }
      await new Promise((done) => setTimeout(done, more ? 50 : PAUSE_MS));
    }
  }
  run();
})();
