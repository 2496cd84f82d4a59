// Refreshes parts of a page every two seconds while it is visible, shows times in the viewer's zone, and previews forms.
"use strict";
const PAUSE_MS = 2000;
const SLOW_MS = 3000;
const parser = new DOMParser();
const shown = new WeakMap(); // by refreshed element: the answer that it shows

function showTimes(root) {
  for (const element of root.querySelectorAll("time")) {
    const date = new Date(element.dataset.time || Number(element.dataset.epoch) * 1000);
    if (Number.isNaN(date.getTime())) continue; // what a record calls a time may be any text
    element.dateTime = date.toISOString();
    element.textContent = date.toLocaleString(document.documentElement.lang, { dateStyle: "medium", timeStyle: "medium" });
  }
}

async function replaceContent(element, response) {
  const text = await response.text();
  if (shown.get(element) !== text) show(element, text); // else screen readers would say the same again and again
  shown.set(element, text);
  element.dispatchEvent(new CustomEvent("refreshed", { bubbles: true }));
}

function show(element, text) {
  const page = parser.parseFromString(text, "text/html");
  const state = (root) => root.querySelector("[data-state]")?.dataset.state;
  if (state(element) !== state(page)) { location.reload(); return; } // what can be done with it has changed, too
  const held = element.contains(document.activeElement) ? document.activeElement : null;
  const address = held && held.getAttribute("href");
  element.replaceChildren(...page.body.childNodes);
  if (address) {
    for (const link of element.querySelectorAll("a[href]")) {
      if (link.getAttribute("href") === address) { link.focus({ preventScroll: true }); break; }
    }
  }
  showTimes(element);
}

async function refresh(element) {
  const stale = document.getElementById("stale");
  const slow = setTimeout(() => { stale.hidden = false; }, SLOW_MS);
  try {
    const response = await fetch(element.dataset.refresh, { redirect: "manual" });
    if (response.type === "opaqueredirect") { location.reload(); return; } // the session has ended
    if (response.status >= 500 || response.status === 429) throw new Error(String(response.status)); // for now
    await replaceContent(element, response);
    stale.hidden = true;
  } catch {
    stale.hidden = false; // the service is away, or what it asks: the page stays as it is
  } finally {
    clearTimeout(slow);
  }
}

async function follow(element) {
  for (;;) {
    await new Promise((done) => setTimeout(done, PAUSE_MS));
    if (document.visibilityState === "visible" && !element.matches(":has(details[open])")) await refresh(element);
  }
}

function preview(form) {
  let timer = 0;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const body = new URLSearchParams(new FormData(form));
      const response = await fetch(form.dataset.preview, { method: "POST", body, redirect: "manual" });
      if (response.ok) await replaceContent(document.getElementById(form.dataset.previewInto), response);
    }, 250);
  });
}

const here = new URL(location.href); // what a change has told is told once, not again when the page is loaded again
if (["changed", "retried", "sent"].some((name) => here.searchParams.has(name))) {
  here.searchParams.delete("changed");
  here.searchParams.delete("retried");
  here.searchParams.delete("sent");
  history.replaceState(null, "", here);
}
showTimes(document);
document.querySelector("header nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); // on a phone
document.querySelectorAll("[data-end]").forEach((text) => { text.scrollTop = text.scrollHeight; }); // of a log, the end says why
document.querySelectorAll("[data-refresh]").forEach(follow);
document.querySelectorAll("form[data-preview]").forEach(preview);
document.addEventListener("submit", (event) => { // of the whole page: a refreshed part has new forms
  const question = event.target.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});
document.querySelectorAll("select[data-submit]").forEach((select) => select.addEventListener("change", () => select.form.submit()));
document.querySelectorAll("button[data-copy]").forEach((button) => {
  button.hidden = false;
  button.addEventListener("click", () => {
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    if (document.execCommand("copy")) button.textContent = button.dataset.copied; // navigator.clipboard is there with TLS only
  });
});
document.querySelectorAll("input[data-zone]").forEach((input) => {
  if (!input.value) input.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
});
