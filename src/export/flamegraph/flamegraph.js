(function () {
  "use strict";
  var PITCH = 18, NARROW = 24, TINY = 3e-5;
  var picture = document.getElementById("flamegraph");
  function part(id) { return document.getElementById(id); }
  var field = part("search"), hasField = field !== null && field.tagName === "INPUT";
  var zoomed = null, term = "";

  // A frame: its element, its name, its position and width in percent, and its distance from the first frame, negative for callers.
  var frames = Array.from(picture.querySelectorAll("svg.f"), function (element) {
    var title = element.querySelector("title").textContent;
    return {
      element: element, title: title, name: title.split("\n")[0], y: Number(element.getAttribute("y")),
      x: parseFloat(element.getAttribute("x")), width: parseFloat(element.getAttribute("width")),
      isRoot: element.classList.contains("r"), hidden: false
    };
  });
  var first = frames[0];
  frames.forEach(function (frame) { frame.depth = Math.round((frame.y - first.y) / PITCH); });
  var byElement = new Map(frames.map(function (frame) { return [frame.element, frame]; }));

  function frameOf(event) {
    var element = event.target.closest && event.target.closest("svg.f");
    return element ? byElement.get(element) : null;
  }

  function label(frame, width) {
    var text = frame.element.querySelector("text");
    if (width < NARROW) {
      if (text) text.remove();
    } else if (!text) {
      text = document.createElementNS("http://www.w3.org/2000/svg", "text");
      text.setAttribute("x", "4");
      text.setAttribute("y", "13");
      text.textContent = frame.name;
      frame.element.append(text);
    }
  }

  function labels() {
    var width = picture.getBoundingClientRect().width / 100;
    frames.forEach(function (frame) { if (!frame.hidden) label(frame, frame.shown * width); });
  }

  function place(frame, x, width, isParent) {
    frame.hidden = width === 0;
    frame.at = x;
    frame.shown = width;
    frame.element.classList.toggle("hide", frame.hidden);
    frame.element.classList.toggle("parent", isParent);
    if (!frame.hidden) {
      frame.element.setAttribute("x", x + "%");
      frame.element.setAttribute("width", width + "%");
    }
  }

  // Shows a frame in the full width, below the frames that contain it. Without a frame, shows everything.
  function zoom(to) {
    zoomed = to && to.depth !== 0 ? to : null;
    frames.forEach(function (frame) {
      if (!zoomed || frame.depth * zoomed.depth <= 0) {
        place(frame, frame.x, frame.width, false);
      } else if (Math.abs(frame.depth) <= Math.abs(zoomed.depth)) {
        var contains = frame.x <= zoomed.x + TINY && frame.x + frame.width >= zoomed.x + zoomed.width - TINY;
        place(frame, 0, contains ? 100 : 0, contains && frame !== zoomed);
      } else {
        var inside = frame.x >= zoomed.x - TINY && frame.x + frame.width <= zoomed.x + zoomed.width + TINY;
        place(frame, (frame.x - zoomed.x) * 100 / zoomed.width, inside ? frame.width * 100 / zoomed.width : 0, false);
      }
    });
    labels();
    part("unzoom").classList.toggle("hide", !zoomed);
    show(zoomed);
    link(zoomed);
    mark();
    remember();
  }

  // The link of the page to the callers and callees of a frame's function.
  function link(frame) {
    var focus = part("focus");
    if (!focus) return;
    focus.classList.toggle("hide", !frame || frame.isRoot);
    if (frame) focus.href = focus.dataset.to + encodeURIComponent(frame.name);
  }

  function show(frame) {
    part("details").textContent = frame ? frame.title.replace("\n", ": ") : " ";
  }

  function pattern(text) {
    try {
      return new RegExp(text, "i");
    } catch (error) {
      return new RegExp(text.replace(/[^A-Za-z0-9_ ]/g, "\\$&"), "i");
    }
  }

  // Returns the share of the picture that frames cover.
  function covered(frames) {
    var sum = 0, end = -1;
    frames.sort(function (a, b) { return a.at - b.at || b.shown - a.shown; }).forEach(function (frame) {
      if (frame.at >= end - TINY) {
        sum += frame.shown;
        end = frame.at + frame.shown;
      }
    });
    return sum;
  }

  // Highlights the frames that match the search term, and shows the share of the picture that they cover.
  function mark() {
    var wanted = term === "" ? null : pattern(term);
    var found = frames.filter(function (frame) {
      var isAll = frame === first && frame.isRoot;
      var matches = wanted !== null && !frame.hidden && !isAll && wanted.test(frame.name);
      frame.element.classList.toggle("m", matches);
      return matches;
    });
    var below = covered(found.filter(function (frame) { return frame.depth >= 0; }));
    var above = covered(found.filter(function (frame) { return frame.depth <= 0; }));
    part("matched").textContent = wanted === null ? " " : "Matched: " + Math.max(below, above).toFixed(1) + "%";
  }

  function search(text) {
    term = text;
    mark();
    remember();
    if (!hasField) field.textContent = text === "" ? "Search" : "Reset search";
  }

  function ask() {
    var text = window.prompt("Search for a function: a regular expression or a text", "");
    if (text !== null) search(text);
  }

  // The address has the search term and the zoom, so that it can be passed on.
  function remember() {
    var query = new URLSearchParams(window.location.search);
    function set(key, value) { if (value === null || value === "") query.delete(key); else query.set(key, value); }
    set("s", term);
    set("x", zoomed ? String(zoomed.x) : null);
    set("y", zoomed ? String(zoomed.depth) : null);
    var text = query.toString();
    try {
      window.history.replaceState(null, "", window.location.pathname + (text ? "?" + text : ""));
    } catch (error) {
      // A file has no address of its own in some browsers.
    }
  }

  picture.addEventListener("mouseover", function (event) { show(frameOf(event) || zoomed); });
  picture.addEventListener("mouseleave", function () { show(zoomed); });
  picture.addEventListener("click", function (event) {
    var frame = frameOf(event);
    if (frame) {
      zoom(frame);
      link(frame);
    }
  });
  part("unzoom").addEventListener("click", function () { zoom(null); });
  window.addEventListener("resize", labels);
  if (hasField) {
    field.addEventListener("input", function () { search(field.value); });
    field.form.addEventListener("submit", function (event) { event.preventDefault(); });
  } else {
    field.addEventListener("click", function () { if (term) search(""); else ask(); });
    picture.setAttribute("width", "100%");
  }
  document.addEventListener("keydown", function (event) {
    var typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "Escape" && typing) {
      // Browsers empty a search field.
      if (event.target === field) {
        field.value = "";
        search("");
      }
      event.target.blur();
    } else if (event.key === "Escape") {
      zoom(null);
    } else if ((event.key === "f" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !typing)) {
      event.preventDefault();
      if (hasField) field.select(); else ask();
    }
  });

  var given = new URLSearchParams(window.location.search);
  term = given.get("s") || "";
  var x = parseFloat(given.get("x")), y = parseInt(given.get("y"), 10);
  zoom(frames.find(function (frame) { return frame.depth === y && Math.abs(frame.x - x) < TINY; }) || null);
  if (hasField) field.value = term; else search(term);
})();
