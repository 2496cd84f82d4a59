// Draws figures over time: first what the history has of a crawl, then what the page shows in the element `counts`: its
// gauges, and a rate from its count of fetched pages.
"use strict";
(() => {
  const HEIGHT = 180, LIVE_POINTS = 300, LEAST_SECONDS = 60, PAUSE_SECONDS = 150;
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const language = document.documentElement.lang;
  const DAY = 86400;

  function times(_, ticks) { // in the viewer's language and zone
    const isLong = ticks.length > 1 && ticks.at(-1) - ticks[0] > DAY;
    const isShort = ticks.length > 1 && ticks[1] - ticks[0] < 60;
    const form = isLong ? { month: "short", day: "numeric", hour: "2-digit" } : { hour: "2-digit", minute: "2-digit" };
    if (isShort) form.second = "2-digit";
    return ticks.map((tick) => new Date(tick * 1000).toLocaleString(language, form));
  }

  const number = (value) => value.toLocaleString(language, { maximumFractionDigits: 1 });
  const axis = () => ({ stroke: color("--soft"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") } });
  const rates = document.getElementById("rates");
  const past = rates ? JSON.parse(rates.dataset.rates) : [];
  const points = past.map((point) => ({ ...point, rate: point.pages_per_second }));
  const charts = [...document.querySelectorAll(".chart")].map(chart);

  function withGaps(shown) { // an empty point in each pause, so that no line is drawn over it
    const distances = shown.slice(1).map((point, place) => point.at - shown[place].at).sort((one, other) => one - other);
    const pause = Math.max(PAUSE_SECONDS, 3 * (distances[distances.length >> 1] || 0));
    return shown.flatMap((point, place) => {
      const before = place ? shown[place - 1].at : point.at;
      return point.at - before > pause ? [{ at: (before + point.at) / 2 }, point] : [point];
    });
  }

  function describe(place, values) { // for people who do not see it
    if (!values.length) return;
    const text = place.dataset.summary.replace("{label}", place.dataset.label).replace("{now}", number(values.at(-1)));
    place.setAttribute("aria-label", text.replace("{most}", number(Math.max(...values))));
  }

  function chart(place) {
    const width = () => {
      const { paddingLeft, paddingRight } = getComputedStyle(place);
      return place.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
    };
    const value = (_, at) => at == null ? "–" : number(at); // undefined: there is no point
    const limit = place.dataset.limit ? [{ label: place.dataset.limitLabel, value, stroke: color("--warn"), width: 2, dash: [6, 4] }] : [];
    const plot = new uPlot({
      width: width(), height: HEIGHT, padding: [null, 40, null, null],
      scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
      axes: [{ ...axis(), values: times, space: 90 }, { ...axis(), values: (_, ticks) => ticks.map(number) }],
      series: [{ label: place.dataset.time, value: (_, at) => at === null ? "–" : new Date(at * 1000).toLocaleString(language) }, { label: place.dataset.label, value, stroke: color("--accent"), width: 2, fill: color("--accent-soft") }, ...limit],
    }, [[], [], ...limit.map(() => [])], place);
    new ResizeObserver(() => plot.setSize({ width: width(), height: HEIGHT })).observe(place);
    return () => {
      const last = points.at(-1); // an empty point before the only ones: the axis of a single one would show years
      const isShort = last && last.at - points[0].at < LEAST_SECONDS;
      const shown = isShort ? [{ at: last.at - LEAST_SECONDS }, ...points] : withGaps(points);
      const values = shown.map((point) => point[place.dataset.value] ?? null);
      const limits = limit.map(() => shown.map((point) => point[place.dataset.limit] ?? null));
      plot.setData([shown.map((point) => point.at), values, ...limits]);
      queueMicrotask(() => { // when it is drawn: the latest values, until one is pointed at
        if (!(plot.cursor.left >= 0)) plot.setLegend({ idx: values.length - 1 });
      });
      describe(place, values.filter((value) => value !== null));
    };
  }

  let last = null;
  function note() {
    const counts = document.getElementById("counts");
    if (!counts) return;
    const at = Date.now() / 1000, fetched = Number(counts.dataset.fetched || 0);
    const isCrawl = "fetched" in counts.dataset;
    if (isCrawl ? last && counts.dataset.runs : true) {
      const rate = isCrawl ? Math.max(0, (fetched - last.fetched) / (at - last.at)) : 0;
      points.push({ at, rate, ...JSON.parse(counts.dataset.gauges) });
      if (points.length > past.length + LIVE_POINTS) points.splice(past.length, 1);
    }
    last = { at, fetched };
    charts.forEach((draw) => draw());
  }
  note();
  document.addEventListener("refreshed", note);
})();
