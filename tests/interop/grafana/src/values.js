// How values look: the text of example values in each panel, and the texts and colors of values of real data.

import { FieldType, formattedValueToString, getValueFormats, reduceField, toDataFrame } from '@grafana/data';

import { optionsOf, theme, withOptions } from './panels.js';

const SIZES = [0, 1536, 7.4e9];
const COUNTS = [0, 0.037, 12.5, 1234567];
const RATES = [0, 0.037, 12.5, 45678];
// Example values of each unit: zero, and the range of the metrics.
const EXAMPLES = {
  Bps: SIZES,
  bytes: SIZES,
  dateTimeFromNow: [-90e3, -30 * 3600e3], // relative to now
  hertz: [0, 1.2e6, 2.95e9],
  iops: RATES,
  none: [0, 0.37, 1.85],
  ns: [0, 850, 1.25e7, 3e9],
  ops: RATES,
  percentunit: [0, 0.00034, 0.42, 1],
  reqps: RATES,
  s: [0, 2.1e-6, 0.0125, 75],
  short: COUNTS,
  string: [],
  watt: [0, 43.7, 1250],
};

const known = new Set(getValueFormats().flatMap((category) => category.submenu.map((format) => format.value)));

/** Returns the units of a panel, each with the name of its column: '' for the default. */
export function unitsOf(panel) {
  const units = [['', panel.fieldConfig.defaults.unit]];
  for (const override of panel.fieldConfig.overrides) {
    for (const property of override.properties) {
      if (property.id === 'unit') {
        units.push([override.matcher.options, property.value]);
      }
    }
  }
  return units;
}

/** Returns a problem for each unit that Grafana does not have, or that has no examples. */
export function unknownUnits(panel) {
  return unitsOf(panel).flatMap(([column, unit]) => [
    ...(known.has(unit) ? [] : [`${column}: Grafana has no unit ${unit}`]),
    ...(EXAMPLES[unit] ? [] : [`${column}: no example values for the unit ${unit}`]),
  ]);
}

function textOf(field, value) {
  return formattedValueToString(field.display(value)).trim();
}

/** Returns lines "column: value → text" for the columns of a panel. */
export function examples(panel) {
  const units = unitsOf(panel);
  const hasColumns = panel.type === 'table';
  return units.slice(hasColumns ? 1 : 0).map(([column, unit]) => {
    const values = EXAMPLES[unit]?.map((value) => (unit === 'dateTimeFromNow' ? Date.now() + value : value)) ?? [];
    const name = column || 'value';
    const [frame] = withOptions(panel, [toDataFrame({ fields: [{ name, type: FieldType.number, values }] })], (text) => text);
    const texts = values.map((value, at) => `${EXAMPLES[unit][at]} → ${textOf(frame.fields[0], value)}`);
    const mappings = panel.fieldConfig.defaults.mappings.length ? [`nothing → ${textOf(frame.fields[0], null)}`] : [];
    return `${hasColumns ? `${column}, ` : ''}${unit}: ${[...texts, ...mappings].join('; ')}`;
  });
}

// Digits, optionally with a prefix and a unit: what fits into a cell.
const READABLE = /^-?[\d.]{1,7}( ?[A-Za-z%µμ][A-Za-z/ ]{0,9})?$/;
// Grafana shows smaller numbers without a prefix, as 0.0000104 or with an exponent.
const TINY = 1e-3;

function isNumber(value) {
  return Number.isFinite(value) && (value === 0 || Math.abs(value) >= TINY);
}

/** Returns the texts of real values that are too long or no numbers, with their fields. */
export function unreadable(shown) {
  const problems = [];
  for (const field of shown.flatMap((frame) => frame.fields).filter((one) => one.type === FieldType.number)) {
    if (field.config.unit === 'dateTimeFromNow') {
      continue;
    }
    const long = field.values.find((value) => isNumber(value) && !READABLE.test(textOf(field, value)));
    if (long !== undefined) {
      problems.push(`${field.state.displayName}: ${long} is shown as "${textOf(field, long)}"`);
    }
  }
  return problems;
}

/** Returns the labels that a table does not show as they are, with their columns. */
export function changedLabels(shown) {
  const columns = shown.flatMap((frame) => frame.fields).filter((field) => field.type === FieldType.string);
  return columns.flatMap((field) => {
    const changed = [...field.values, ...LABELS].find((value) => textOf(field, value) !== String(value).trim());
    return changed === undefined ? [] : [`${field.state.displayName}: ${changed} is shown as "${textOf(field, changed)}"`];
  });
}

/** Returns a problem for each threshold whose color the value at the threshold does not have. */
export function wrongColors(shown) {
  const problems = [];
  let checked = 0;
  for (const field of shown.flatMap((frame) => frame.fields).filter((one) => one.type === FieldType.number)) {
    const { thresholds, color } = field.config;
    if (color?.mode !== 'thresholds' || !thresholds) {
      continue;
    }
    for (const step of thresholds.steps) {
      const expected = theme.visualization.getColorByName(step.color);
      const value = step.value === -Infinity ? lower(thresholds.steps[1]?.value ?? 1) : step.value;
      const shownColor = field.display(value).color;
      checked += 1;
      if (sameColor(shownColor) !== sameColor(expected)) {
        problems.push(`${field.state.displayName}: ${value} has the color ${shownColor} instead of ${step.color} (${expected})`);
      }
    }
  }
  return { problems, checked };
}

// Labels that look like something else: numbers, and a time.
const LABELS = ['1234567', '0.10', '2026-11'];

// A value below a threshold.
function lower(value) {
  return value - Math.abs(value) / 1000;
}

function sameColor(color) {
  const context = document.createElement('canvas').getContext('2d');
  context.fillStyle = color;
  return context.fillStyle;
}

/** Returns a problem for each option that Grafana would remove from the panel. */
export function removedOptions(panel) {
  const { fieldConfig } = optionsOf(panel);
  const problems = [];
  panel.fieldConfig.overrides.forEach((override, at) => {
    for (const property of override.properties) {
      if (!fieldConfig.overrides[at].properties.some((kept) => kept.id === property.id)) {
        problems.push(`there is no option ${property.id}, which the override of ${override.matcher.options} sets`);
      }
    }
  });
  const { custom = {}, ...defaults } = panel.fieldConfig.defaults;
  const kept = fieldConfig.defaults;
  problems.push(...Object.keys(defaults).filter((name) => !(name in kept)).map((name) => `there is no option ${name}`));
  problems.push(
    ...Object.keys(custom).filter((name) => !(name in (kept.custom ?? {}))).map((name) => `there is no option custom.${name}`)
  );
  return problems;
}

/** Returns the calculations that the panel names and Grafana does not have. */
export function unknownCalculations(panel) {
  const names = [...(panel.options.reduceOptions?.calcs ?? []), ...(panel.options.legend?.calcs ?? [])];
  const field = { name: 'value', type: FieldType.number, config: {}, values: [1, 2] };
  return names.filter((name) => !(name in reduceField({ field, reducers: [name] }))).map((name) => `there is no calculation ${name}`);
}
