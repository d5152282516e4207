(function () {
  "use strict";
  var table = document.getElementById("functions");
  var body = table.tBodies[0];
  var heads = Array.from(table.tHead.rows[0].cells);
  // The name of a function, without the links beside it.
  function text(cell) {
    return (cell.querySelector("code") || cell).textContent;
  }
  function key(row, at) {
    var cell = row.cells[at];
    return "v" in cell.dataset ? Number(cell.dataset.v) : text(cell);
  }
  heads.forEach(function (head, at) {
    head.querySelector("button").addEventListener("click", function () {
      var words = typeof key(body.rows[0], at) === "string";
      var now = head.getAttribute("aria-sort");
      var order = now === "descending" ? "ascending" : now === "ascending" ? "descending" : words ? "ascending" : "descending";
      var sign = order === "ascending" ? 1 : -1;
      heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", order);
      var rows = Array.from(body.rows);
      rows.sort(function (a, b) {
        var x = key(a, at), y = key(b, at);
        return sign * (words ? x.localeCompare(y) : x - y);
      });
      body.append.apply(body, rows);
    });
  });
  document.getElementById("find").addEventListener("input", function (event) {
    var wanted = event.target.value.toLowerCase();
    Array.from(body.rows).forEach(function (row) {
      row.hidden = !Array.from(row.cells).some(function (cell) { return text(cell).toLowerCase().includes(wanted); });
    });
  });
})();
