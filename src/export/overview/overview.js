(function () {
  "use strict";
  var REFRESH = 5000;
  var main = document.querySelector("main");
  var panel = document.getElementById("selected");
  // The selected steps: where the selection began, and where it ends. Both are included.
  var range = null, dragging = false, cursor = null;

  function grid() {
    var data = main.dataset;
    return { from: Number(data.from), step: Number(data.step), count: Number(data.count) };
  }
  function charts() { return Array.from(main.querySelectorAll(".chart")); }
  function valuesOf(chart) {
    if (!chart.values) {
      chart.values = chart.dataset.v.split(",").map(function (text) { return text === "" ? null : Number(text); });
    }
    return chart.values;
  }
  function digits(value) {
    return value < 0.0005 ? "0" : value < 1 ? value.toFixed(3) : value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : value.toFixed(0);
  }
  function shown(figure, value) {
    if (value === null || value === undefined) { return "–"; }
    if (figure === "cpu" || figure === "ipc" || figure === "cache_misses") { return digits(value); }
    if (figure === "runqueue_latency" || figure === "block_latency") {
      return value < 1e-3 ? digits(value * 1e6) + " µs" : value < 1 ? digits(value * 1e3) + " ms" : digits(value) + " s";
    }
    return (value < 1e4 ? digits(value) : value < 1e6 ? digits(value / 1e3) + " k" : digits(value / 1e6) + " M") + "/s";
  }
  function time(milliseconds) { return new Date(milliseconds).toISOString().slice(11, 19); }

  // Places a marker over the drawing of a chart, from a step to another.
  function mark(chart, name, first, last) {
    var marker = chart.querySelector("." + name);
    if (first === null) {
      if (marker) { marker.remove(); }
      return;
    }
    if (!marker) {
      marker = document.createElement("i");
      marker.className = name;
      chart.append(marker);
    }
    var drawing = chart.querySelector("svg").getBoundingClientRect(), frame = chart.getBoundingClientRect();
    var all = grid().count || 1;
    marker.style.left = drawing.left - frame.left - chart.clientLeft + drawing.width * first / all + "px";
    marker.style.top = drawing.top - frame.top - chart.clientTop + "px";
    if (name === "range") { marker.style.width = drawing.width * (last - first + 1) / all + "px"; }
  }
  function draw() {
    var at = grid();
    var low = range && Math.min(range.from, range.to), high = range && Math.max(range.from, range.to);
    charts().forEach(function (chart) {
      mark(chart, "cursor", cursor === null ? null : cursor + 0.5);
      mark(chart, "range", range ? low : null, high);
      var text = cursor === null ? "" : shown(chart.dataset.figure, valuesOf(chart)[cursor]) + " at " + time(at.from + cursor * at.step);
      chart.querySelector("output").textContent = text;
    });
    panel.hidden = !range || dragging;
    if (!panel.hidden) {
      panel.querySelector("b").textContent = time(at.from + low * at.step) + " – " + time(at.from + (high + 1) * at.step);
      panel.querySelectorAll("a").forEach(function (link) { link.href = address(link.dataset.to, at, low, high); });
    }
  }
  function address(to, at, low, high) {
    var from = (at.from + low * at.step) / 1000, end = (at.from + (high + 1) * at.step) / 1000;
    var times = "from=" + from.toFixed(3) + "&to=" + end.toFixed(3);
    var selection = main.dataset.selection;
    if (to === "zoom") {
      var query = new URLSearchParams(location.search);
      ["last", "from", "to"].forEach(function (key) { query.delete(key); });
      return location.pathname + "?" + (query.toString() ? query + "&" : "") + times;
    }
    var graph = "/flamegraph?" + (selection ? selection + "&" : "") + times;
    if (to === "compare") {
      graph += "&base_from=" + Math.max(0, 2 * from - end).toFixed(3) + "&base_to=" + from.toFixed(3);
    }
    return graph;
  }
  function stepAt(event) {
    var drawing = event.target.closest && event.target.closest(".chart svg");
    if (!drawing && !dragging) { return null; }
    var box = (drawing || dragging).getBoundingClientRect(), all = grid().count;
    var step = Math.floor((event.clientX - box.left) / box.width * all);
    return all ? Math.max(0, Math.min(all - 1, step)) : null;
  }
  document.addEventListener("pointermove", function (event) {
    var step = stepAt(event);
    if (step === cursor && !dragging) { return; }
    cursor = step;
    if (dragging && step !== null) { range.to = step; }
    draw();
  });
  document.addEventListener("pointerdown", function (event) {
    var step = stepAt(event);
    if (step === null || event.button !== 0) { return; }
    event.preventDefault();
    dragging = event.target.closest(".chart svg");
    range = { from: step, to: step };
    draw();
  });
  document.addEventListener("pointerup", function () {
    if (!dragging) { return; }
    dragging = false;
    // A click selects nothing.
    if (range.from === range.to) { range = null; }
    draw();
  });
  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape") {
      range = null;
      cursor = null;
      draw();
      return;
    }
    var chart = event.target.closest && event.target.closest(".chart");
    var by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!chart || !by) { return; }
    event.preventDefault();
    var last = grid().count - 1;
    var next = Math.max(0, Math.min(last, cursor === null ? last : cursor + by));
    if (event.shiftKey) {
      range = range || { from: cursor === null ? next : cursor, to: next };
      range.to = next;
    }
    cursor = next;
    draw();
  });
  panel.querySelector("button").addEventListener("click", function () {
    range = null;
    draw();
  });

  var waiting = false;
  function refresh() {
    var open = main.querySelector("details[open]") || main.contains(document.activeElement);
    if (document.hidden || range || open || waiting || main.dataset.live !== "1") { return; }
    waiting = true;
    fetch(location.href, { credentials: "same-origin" }).then(function (response) {
      if (!response.ok) { throw new Error(response.status); }
      return response.text();
    }).then(function (text) {
      var fresh = new DOMParser().parseFromString(text, "text/html").querySelector("main");
      if (fresh && !range) {
        main.replaceWith(document.adoptNode(fresh));
        main = fresh;
        draw();
      }
    }).catch(function () {
      // The next refresh may succeed. The page shows the time of its data.
    }).finally(function () { waiting = false; });
  }
  setInterval(refresh, REFRESH);
  document.addEventListener("visibilitychange", refresh);
})();
