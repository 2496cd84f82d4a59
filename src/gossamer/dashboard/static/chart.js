// Draws the pages a second of a crawl, from the counts that the page shows.
"use strict";
(() => {
  const place = document.getElementById("chart");
  const POINTS = 300;
  const times = [], rates = [];
  let last = null;
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const axis = () => ({ stroke: color("--soft"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") } });
  const width = () => {
    const { paddingLeft, paddingRight } = getComputedStyle(place);
    return place.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
  };
  const plot = new uPlot({
    width: width(), height: 180,
    scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
    axes: [axis(), axis()],
    series: [{}, { label: place.dataset.label, stroke: color("--accent"), width: 2, fill: color("--accent-soft") }],
  }, [times, rates], place);
  function note() {
    const counts = document.getElementById("counts");
    if (!counts) return;
    const now = Date.now() / 1000, fetched = Number(counts.dataset.fetched);
    if (last) {
      times.push(now);
      rates.push(Math.max(0, (fetched - last.fetched) / (now - last.now)));
      if (times.length > POINTS) { times.shift(); rates.shift(); }
      plot.setData([times, rates]);
    }
    last = { now, fetched };
  }
  note();
  document.addEventListener("refreshed", note);
  new ResizeObserver(() => plot.setSize({ width: width(), height: 180 })).observe(place);
})();
