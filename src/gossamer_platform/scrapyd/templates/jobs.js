const jobs = document.getElementById("jobs"), search = document.getElementById("search");
const refresh = document.getElementById("refresh");
function filter() {
  const words = search.value.toLowerCase().split(/\s+/);
  for (const row of document.querySelectorAll("#jobs tbody tr:has(td)"))
    row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
}
async function load() {
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const name of ["jobs", "counts"])
    document.getElementById(name).innerHTML = page.getElementById(name).innerHTML;
  filter();
}
search.addEventListener("input", filter);
jobs.addEventListener("submit", async event => {
  event.preventDefault();
  const form = event.target;
  if (!confirm(`Cancel the job ${form.elements.job.value} of ${form.elements.project.value}?`)) return;
  const fields = new URLSearchParams(new FormData(form));
  const answer = await (await fetch(form.action, {method: "POST", body: fields})).json();
  if (answer.status !== "ok") alert(answer.message);
  load();
});
setInterval(() => { if (refresh.checked && !document.hidden) load().catch(() => {}); }, 3000);
document.querySelector(".tools").hidden = false;
