// What panels show: columns of tables, names of series, and the fields that overrides apply to.

import { FieldType, fieldMatchers, getFieldDisplayValues } from '@grafana/data';

import { optionsOf, theme } from './panels.js';

/** Returns the headings of a table, in order. */
export function headings(shown) {
  return shown[0].fields.map((field) => field.state.displayName);
}

/** Returns the headings that a table must have: of all its values, and of labels that one of its frames has. */
function wantedHeadings({ renameByName, excludeByName }, frames) {
  const fields = new Set(frames.flatMap((frame) => frame.fields.map((field) => field.name)));
  const renamed = Object.entries(renameByName).filter(([name]) => !excludeByName[name]);
  return {
    possible: new Set(renamed.map(([, heading]) => heading)),
    necessary: new Set(renamed.filter(([name]) => fields.has(name) || name.startsWith('Value')).map(([, heading]) => heading)),
  };
}

/** Returns the problems of a table: empty, more than one frame, or other columns than those that the panel renames. */
export function wrongTable(panel, frames, shown) {
  if (shown.length !== 1) {
    return [`${shown.length} frames instead of one`];
  }
  const problems = [];
  if (shown[0].length === 0) {
    problems.push('no rows');
  }
  const found = headings(shown);
  const organize = panel.transformations.find((one) => one.id === 'organize').options;
  const { possible, necessary } = wantedHeadings(organize, frames);
  problems.push(...found.filter((name) => !possible.has(name)).map((name) => `unexpected column ${name}`));
  problems.push(...[...necessary].filter((name) => !found.includes(name)).map((name) => `no column ${name}`));
  problems.push(...found.filter((name, at) => found.indexOf(name) !== at).map((name) => `two columns ${name}`));
  problems.push(
    ...panel.options.sortBy.filter((one) => !found.includes(one.displayName)).map((one) => `sorted by ${one.displayName}, no column`)
  );
  for (const field of shown[0].fields) {
    if (field.values.every((value) => value === null || value === undefined || value === '' || Number.isNaN(value))) {
      problems.push(`the column ${field.state.displayName} is empty`);
    }
  }
  return problems;
}

/** Returns the problems of names of series: an unexpanded legend, or two series with the same name. */
export function wrongNames(shown) {
  const names = shown.map((frame) => frame.fields.find((field) => field.type === FieldType.number).state.displayName);
  const twice = names.filter((name, at) => names.indexOf(name) !== at);
  return [
    ...names.filter((name) => !name || /[{}]|\$\w|undefined/.test(name)).map((name) => `a series has the name "${name}"`),
    ...new Set(twice.map((name) => `two series have the name "${name}"`)),
  ];
}

/** Returns the values of a panel with numbers: those of a stat, or of the bars of a gauge. */
export function numbersOf(panel, shown, replaceVariables) {
  const { options, fieldConfig } = optionsOf(panel);
  return getFieldDisplayValues({
    data: shown,
    fieldConfig,
    reduceOptions: options.reduceOptions,
    replaceVariables,
    sparkline: options.graphMode === 'area',
    theme,
    timeZone: 'utc',
  });
}

/** Returns the overrides whose matcher applies to no field of the data. */
export function unmatched(panel, transformed) {
  return panel.fieldConfig.overrides.filter((override) => {
    const matches = fieldMatchers.get(override.matcher.id).get(override.matcher.options);
    return !transformed.some((frame) => frame.fields.some((field) => matches(field, frame, transformed)));
  });
}
