// Data frames of query results, in the form in which Grafana's data source for Prometheus returns them.

import { FieldType, toDataFrame } from '@grafana/data';

// Prometheus writes values as text: "NaN", "+Inf".
function number(text) {
  return text === '+Inf' ? Infinity : Number(text);
}

function points(series) {
  return series.values ?? (series.value ? [series.value] : []);
}

function seriesFrame(result, series) {
  const values = points(series);
  return toDataFrame({
    refId: result.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: values.map(([seconds]) => seconds * 1000) },
      {
        name: 'Value',
        type: FieldType.number,
        labels: series.metric,
        config: { displayNameFromDS: series.legend },
        values: values.map(([, text]) => number(text)),
      },
    ],
  });
}

// One frame for all series of a query. Its columns are the labels and the value.
function tableFrame(result, queries) {
  const labels = [...new Set(result.series.flatMap((series) => Object.keys(series.metric)))].sort();
  const rows = result.series.filter((series) => points(series).length > 0);
  return toDataFrame({
    refId: result.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: rows.map((row) => points(row)[0][0] * 1000) },
      ...labels.map((label) => ({
        name: label,
        type: FieldType.string,
        config: { filterable: true },
        values: rows.map((row) => row.metric[label] ?? ''),
      })),
      {
        name: queries > 1 ? `Value #${result.refId}` : 'Value',
        type: FieldType.number,
        values: rows.map((row) => number(points(row)[0][1])),
      },
    ],
  });
}

/** Returns the frames of a panel, of all its queries. */
export function framesOf(results) {
  const tables = results.filter((result) => result.format === 'table').length;
  return results.flatMap((result) =>
    result.format === 'table'
      ? [tableFrame(result, tables)]
      : result.series.map((series) => seriesFrame(result, series))
  );
}
