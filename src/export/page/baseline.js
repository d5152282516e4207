(function () {
  "use strict";
  var field = document.getElementById("baseline"), state = document.getElementById("upload");
  if (!field) return;
  field.addEventListener("change", function () {
    var file = field.files[0];
    if (!file) return;
    state.textContent = "Uploading\u2026";
    fetch("/api/v1/baselines", { method: "POST", body: file }).then(function (response) {
      return response.text().then(function (text) {
        if (response.ok) location.assign(field.dataset.to + JSON.parse(text).base);
        else state.textContent = text;
      });
    }, function () { state.textContent = "The upload failed: the exporter does not answer."; });
  });
})();
