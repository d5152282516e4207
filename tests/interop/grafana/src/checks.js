// All checks of the dashboards. Results are lists of problems, numbers of checked things, and lines to compare with the golden file.

import { linksOf, wrongDashboardLinks, wrongLink } from './links.js';
import { interpolation, panelsOf, prepared } from './panels.js';
import { pluginOf } from './registries.js';
import { headings, numbersOf, unmatched, wrongNames, wrongTable } from './tables.js';
import { changedLabels, examples, removedOptions, unitsOf, unknownCalculations, unknownUnits, unreadable, wrongColors } from './values.js';

/** Kinds of panels that only Grafana's core can draw, from frames that only its data sources make. */
export const CORE = ['heatmap', 'flamegraph'];

class Report {
  constructor() {
    this.problems = {};
    this.figures = {};
    this.lines = [];
  }

  add(check, where, problems) {
    this.problems[check] = [...(this.problems[check] ?? []), ...problems.map((problem) => `${where}: ${problem}`)];
  }

  count(what, number) {
    this.figures[what] = (this.figures[what] ?? 0) + number;
  }
}

function checkOptions(report, where, panel) {
  if (!pluginOf(panel.type)) {
    report.add('options', where, [`no options are known for the kind ${panel.type}`]);
    return;
  }
  report.count('panels', 1);
  report.count('units', unitsOf(panel).length);
  report.add('units', where, unknownUnits(panel));
  report.add('options', where, [...removedOptions(panel), ...unknownCalculations(panel)]);
  report.lines.push(...examples(panel).map((line) => `${where}: ${line}`));
}

async function checkData(report, where, panel, results, replaceVariables, dashboards) {
  const { frames, transformed, shown } = await prepared(panel, results, replaceVariables);
  report.count('frames', shown.length);
  report.count('transformations', panel.transformations?.length ?? 0);
  // A panel with a text for no value expects that: waits have no samples in the kernel.
  const mayBeEmpty = panel.fieldConfig.defaults.mappings.length > 0;
  report.add('data', where, shown.length === 0 && !mayBeEmpty ? ['no data'] : []);
  report.add('values', where, unreadable(shown));
  const colors = wrongColors(shown);
  report.count('thresholds', colors.checked);
  report.add('thresholds', where, colors.problems);
  if (panel.type === 'table') {
    report.add('tables', where, wrongTable(panel, frames, shown));
    report.add('labels', where, changedLabels(shown));
  } else if (panel.type !== 'stat' || shown.length > 1) {
    // A stat with a single value does not show the name of its series.
    report.add('names', where, wrongNames(shown));
  }
  if (panel.type === 'stat' || panel.type === 'bargauge') {
    const numbers = numbersOf(panel, shown, replaceVariables);
    report.count('numbers', numbers.length);
    report.add('numbers', where, numbers.every((number) => number.display.text) && numbers.length ? [] : ['no number']);
  }
  const links = linksOf(shown);
  report.count('links', links.length);
  report.add('links', where, links.flatMap((link) => wrongLink(link, dashboards)));
  return { columns: panel.type === 'table' && shown.length ? headings(shown) : [], rest: unmatched(panel, transformed) };
}

// Series of some label values exist only in case of a problem. Then the value must be a word of the exporter, and the legend this label.
function isWord(panel, override, words) {
  const isLabel = panel.targets.some((target) => /^\{\{\w+\}\}$/.test(target.legendFormat));
  return isLabel && override.matcher.id === 'byName' && words.includes(override.matcher.options);
}

async function checkPanel(report, name, panel, { dashboard, dashboards, selections, words }) {
  const where = `${name} · ${panel.title}`;
  checkOptions(report, where, panel);
  if (CORE.includes(panel.type)) {
    report.count('panels whose frames only the core makes', 1);
    return;
  }
  const columns = new Set();
  let rest = panel.fieldConfig.overrides;
  report.count('overrides', rest.length);
  for (const selection of selections.filter((one) => name in one.dashboards)) {
    const { values, results } = selection.dashboards[name];
    const replaceVariables = interpolation(dashboard, values, selection);
    const found = await checkData(report, `${where} (${selection.name})`, panel, results[panel.id], replaceVariables, dashboards);
    columns.add(found.columns.join(' | '));
    rest = rest.filter((override) => found.rest.includes(override));
  }
  const wrong = rest.filter((override) => !isWord(panel, override, words));
  report.add('overrides', where, wrong.map((override) => `no field ${JSON.stringify(override.matcher)}`));
  report.count('overrides of values that only a problem causes', rest.length);
  report.add('tables', where, columns.size > 1 ? [`scraped and pushed metrics have different columns: ${[...columns].join(' or ')}`] : []);
  if (panel.type === 'table') {
    report.lines.push(`${where}: ${[...columns][0]}`);
  }
}

/** Checks all dashboards, an object by the names of their files. */
export async function check(files, { selections, words }) {
  const report = new Report();
  const dashboards = Object.fromEntries(Object.values(files).map((dashboard) => [dashboard.uid, dashboard]));
  for (const [name, dashboard] of Object.entries(files)) {
    for (const panel of panelsOf(dashboard)) {
      try {
        await checkPanel(report, name, panel, { dashboard, dashboards, selections, words });
      } catch (error) {
        report.add('data', `${name} · ${panel.title}`, [error.stack]);
      }
    }
    const links = wrongDashboardLinks(dashboard, dashboards);
    report.count('targets of dashboard links', links.checked);
    report.add('links', name, links.problems);
  }
  return { problems: report.problems, figures: report.figures, lines: report.lines };
}
