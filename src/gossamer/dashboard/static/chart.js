// Draws the pages a second and the queue of a crawl: first what the history has, then the counts that the page shows.
"use strict";
(() => {
  const HEIGHT = 180, LIVE_POINTS = 300;
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const axis = () => ({ stroke: color("--soft"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") } });
  const past = JSON.parse(document.getElementById("rates").dataset.rates);
  const points = past.map((point) => ({ at: point.at, rate: point.pages_per_second, waiting: point.waiting }));
  const charts = [...document.querySelectorAll(".chart")].map(chart);

  function chart(place) {
    const width = () => {
      const { paddingLeft, paddingRight } = getComputedStyle(place);
      return place.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
    };
    const plot = new uPlot({
      width: width(), height: HEIGHT,
      scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
      axes: [axis(), axis()],
      series: [{}, { label: place.dataset.label, stroke: color("--accent"), width: 2, fill: color("--accent-soft") }],
    }, [[], []], place);
    new ResizeObserver(() => plot.setSize({ width: width(), height: HEIGHT })).observe(place);
    return () => plot.setData([points.map((point) => point.at), points.map((point) => point[place.dataset.value])]);
  }

  let last = null;
  function note() {
    const counts = document.getElementById("counts");
    if (!counts) return;
    const at = Date.now() / 1000, fetched = Number(counts.dataset.fetched);
    if (last && counts.dataset.runs) {
      points.push({ at, rate: Math.max(0, (fetched - last.fetched) / (at - last.at)), waiting: Number(counts.dataset.waiting) });
      if (points.length > past.length + LIVE_POINTS) points.splice(past.length, 1);
    }
    last = { at, fetched };
    charts.forEach((draw) => draw());
  }
  note();
  document.addEventListener("refreshed", note);
})();
