// Draws a dashboard with the components of @grafana/ui, as the panels of Grafana's core do. Heat maps and flame graphs are not drawn: there
// is no component for the first, and no data for the second.

import { EventBusSrv, dateTime, getDisplayValueAlignmentFactors } from '@grafana/data';
import {
  BarGauge,
  BigValue,
  GlobalStyles,
  PanelChrome,
  PanelContextProvider,
  Table,
  ThemeContext,
  TimeSeries,
  VizRepeater,
} from '@grafana/ui';
import { createRoot } from 'react-dom/client';

import { CORE } from './checks.js';
import { interpolation, optionsOf, panelsOf, prepared, theme } from './panels.js';
import { numbersOf } from './tables.js';

// Pixels of a cell of Grafana's grid, and of the space between panels.
const WIDTH = 1600;
const COLUMN = WIDTH / 24;
const ROW = 38;
const SPACE = 8;

// Bars and big numbers.
function Numbers({ panel, shown, replaceVariables, width, height }) {
  const { options } = optionsOf(panel);
  const Bar = ({ value, width, height, alignmentFactors, count, orientation }) =>
    panel.type === 'bargauge' ? (
      <BarGauge
        {...{ width, height, orientation, theme, value: value.display, field: value.field }}
        display={value.view?.getFieldDisplayProcessor(value.colIndex)}
        displayMode={options.displayMode} namePlacement={options.namePlacement} showUnfilled={options.showUnfilled}
        alignmentFactors={alignmentFactors} itemSpacing={8} lcdCellWidth={12} valueDisplayMode={options.valueMode}
      />
    ) : (
      <BigValue
        {...{ width, height, theme, alignmentFactors, count, value: value.display, sparkline: value.sparkline }}
        colorMode={options.colorMode} graphMode={options.graphMode} justifyMode={options.justifyMode} textMode={options.textMode}
        wideLayout={options.wideLayout}
      />
    );
  return (
    <VizRepeater
      getValues={() => numbersOf(panel, shown, replaceVariables)} getAlignmentFactors={getDisplayValueAlignmentFactors} renderValue={Bar}
      width={width} height={height} itemSpacing={panel.type === 'bargauge' ? 8 : 3} minVizHeight={options.minVizHeight}
      orientation={options.orientation} source={shown} autoGrid={options.orientation === 'auto'} renderCounter={0}
    />
  );
}

function Content({ panel, data, size: [width, height], timeRange }) {
  const { shown, replaceVariables } = data;
  if (panel.type === 'timeseries') {
    const { legend } = panel.options;
    const rest = { timeRange, legend, timeZone: 'utc', structureRev: 1, options: panel.options };
    return <TimeSeries {...{ frames: shown, width, height, ...rest }} />;
  }
  if (panel.type === 'table') {
    return <Table {...{ data: shown[0], width, height, initialSortBy: panel.options.sortBy, cellHeight: panel.options.cellHeight }} />;
  }
  return panel.type === 'stat' || panel.type === 'bargauge' ? (
    <Numbers {...{ panel, shown, replaceVariables, width, height }} />
  ) : (
    <div style={{ padding: 16 }}>not drawn: this kind of panel is part of Grafana&apos;s core</div>
  );
}

function Panel({ panel, data, timeRange }) {
  const { title, description } = panel;
  const { x, y, w, h } = panel.gridPos;
  const width = w * COLUMN - SPACE;
  const height = h * ROW - SPACE;
  return (
    <div data-panel={panel.title} style={{ position: 'absolute', left: x * COLUMN, top: y * ROW, width, height }}>
      <PanelChrome {...{ title, description, width, height, padding: panel.type === 'table' ? 'none' : 'md' }}>
        {(innerWidth, innerHeight) => <Content {...{ panel, data, size: [innerWidth, innerHeight], timeRange }} />}
      </PanelChrome>
    </div>
  );
}

// Returns all panels with their places if all rows are open, and the height.
function open(dashboard) {
  let shift = 0;
  const all = dashboard.panels.flatMap((panel) => {
    const moved = { ...panel, gridPos: { ...panel.gridPos, y: panel.gridPos.y + shift } };
    if (panel.type !== 'row' || !panel.panels.length) {
      return [moved];
    }
    const inside = panel.panels.map((one) => ({ ...one, gridPos: { ...one.gridPos, y: one.gridPos.y + shift } }));
    shift += Math.max(...inside.map((one) => one.gridPos.y + one.gridPos.h)) - (moved.gridPos.y + 1);
    return [moved, ...inside];
  });
  return { all, height: Math.max(...all.map((panel) => panel.gridPos.y + panel.gridPos.h)) * ROW };
}

let root;

/** Draws a dashboard. Returns the size of the page, the number of panels, and what is not drawn or does not fit. */
export async function draw(name, { dashboards, data }) {
  const dashboard = dashboards[name];
  const selection = data.selections[0];
  const { values, results } = selection.dashboards[name];
  const replaceVariables = interpolation(dashboard, values, selection);
  const timeRange = { from: dateTime(selection.from), to: dateTime(selection.to), raw: { from: 'now-1m', to: 'now' } };
  const content = {};
  for (const panel of panelsOf(dashboard)) {
    content[panel.id] = { ...(await prepared(panel, results[panel.id], replaceVariables)), replaceVariables };
  }
  const { all, height } = open(dashboard);
  root ??= createRoot(document.body.appendChild(document.createElement('div')));
  root.render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <PanelContextProvider value={{ eventsScope: 'global', eventBus: new EventBusSrv() }}>
        <div key={name} style={{ position: 'relative', width: WIDTH, height, background: theme.colors.background.canvas }}>
          {all.map((panel) =>
            panel.type === 'row' ? (
              <h4 key={panel.id} style={{ position: 'absolute', top: panel.gridPos.y * ROW + 6, left: 8 }}>{panel.title}</h4>
            ) : (
              <Panel key={panel.id} {...{ panel, data: content[panel.id], timeRange }} />
            )
          )}
        </div>
      </PanelContextProvider>
    </ThemeContext.Provider>
  );
  // Components measure their panels first, and then draw.
  for (let tries = 0; tries < 200 && (tries < 5 || notDrawn().length > 0); tries += 1) {
    await new Promise((done) => setTimeout(done, 100));
  }
  const drawn = panelsOf(dashboard).filter((panel) => !CORE.includes(panel.type));
  return { width: WIDTH, height, panels: drawn.length, problems: [...notDrawn(), ...badHeadings()], truncated: truncated('h2') };
}

// Panels without a picture and without a text.
function notDrawn() {
  const panels = [...document.querySelectorAll('[data-panel]')];
  const content = (panel) => panel.innerText.replace(panel.dataset.panel, '').trim();
  const empty = panels.filter((panel) => !panel.querySelector('canvas') && /^(|No data)$/.test(content(panel)));
  return empty.map((panel) => `${panel.dataset.panel} is empty`);
}

// Columns that are too narrow for their headings, or outside of the panel.
function badHeadings() {
  const outside = [...document.querySelectorAll('[role=columnheader]')].filter(
    (heading) => heading.getBoundingClientRect().right > heading.closest('[data-panel]').getBoundingClientRect().right + 1
  );
  const narrow = truncated('[role=columnheader] div, [role=columnheader] button');
  return [
    ...outside.map((heading) => `the column ${heading.innerText} is outside of its panel`),
    ...narrow.map((heading) => `the column of ${heading} is too narrow for it`),
  ];
}

// Texts of these elements that do not fit.
function truncated(selector) {
  const texts = [...document.querySelectorAll(selector)].filter((text) => text.scrollWidth > text.clientWidth + 1);
  return [...new Set(texts.map((text) => text.innerText))];
}
