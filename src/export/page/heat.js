(function () {
  "use strict";
  var map = document.getElementById("heat"), chosen = document.getElementById("chosen");
  var cell = document.getElementById("cell"), to = document.getElementById("to"), hint = cell.textContent;
  var rows = Number(map.dataset.rows), seconds = Number(map.dataset.seconds), from = Number(map.dataset.from);
  var WIDTH = 10, HEIGHT = 6;
  // Numbers of cells in the order of time: where the selection began and where it ends. Both are included.
  var range = null, dragging = false;

  function at(event) {
    var box = map.getBoundingClientRect();
    var second = Math.floor((event.clientX - box.left) / box.width * seconds);
    var row = rows - 1 - Math.floor((event.clientY - box.top) / box.height * rows);
    second = Math.max(0, Math.min(seconds - 1, second));
    return second * rows + Math.max(0, Math.min(rows - 1, row));
  }
  function begin(number) { return from + number / rows; }
  function time(moment) { return new Date(moment * 1000).toISOString().slice(11, 23); }
  function rectangle(second, low, high) {
    var y = (rows - 1 - high) * HEIGHT;
    return "M" + second * WIDTH + " " + y + "h" + WIDTH + "v" + (high - low + 1) * HEIGHT + "h-" + WIDTH + "z";
  }
  function draw() {
    to.classList.toggle("hide", !range);
    if (!range) {
      chosen.setAttribute("d", "");
      return;
    }
    var low = Math.min(range.from, range.to), high = Math.max(range.from, range.to), path = "";
    for (var second = Math.floor(low / rows); second <= Math.floor(high / rows); second++) {
      path += rectangle(second, Math.max(low - second * rows, 0), Math.min(high - second * rows, rows - 1));
    }
    chosen.setAttribute("d", path);
    to.querySelector("b").textContent = time(begin(low)) + " – " + time(begin(high + 1)) + " UTC";
    var base = map.dataset.to;
    to.querySelector("a").href = base + (base.includes("?") ? "&" : "?") + "from=" + begin(low).toFixed(3) + "&to=" + begin(high + 1).toFixed(3);
  }
  map.addEventListener("pointermove", function (event) {
    var number = at(event);
    cell.textContent = time(begin(number)) + " UTC";
    if (dragging) {
      range.to = number;
      draw();
    }
  });
  map.addEventListener("pointerleave", function () { cell.textContent = hint; });
  map.addEventListener("pointerdown", function (event) {
    if (event.button !== 0) { return; }
    event.preventDefault();
    dragging = true;
    range = { from: at(event), to: at(event) };
    draw();
  });
  document.addEventListener("pointerup", function () { dragging = false; });
  document.addEventListener("keydown", function (event) {
    var by = { ArrowLeft: -rows, ArrowRight: rows, ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (event.key === "Escape") {
      range = null;
      draw();
    } else if (by && document.activeElement === map) {
      event.preventDefault();
      range = range || { from: 0, to: 0 };
      range.to = Math.max(0, Math.min(seconds * rows - 1, range.to + by));
      if (!event.shiftKey) { range.from = range.to; }
      draw();
    }
  });
})();
