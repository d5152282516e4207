// What Grafana does with a panel before it draws it: variables, transformations, options of fields.

import {
  applyFieldOverrides,
  cacheFieldDisplayNames,
  createTheme,
  dateTime,
  getPanelOptionsWithDefaults,
  locationUtil,
  transformDataFrame,
} from '@grafana/data';
import { CustomVariable, SceneFlexLayout, SceneTimeRange, SceneVariableSet, TextBoxVariable, sceneGraph } from '@grafana/scenes';
import { lastValueFrom } from 'rxjs';

import { framesOf } from './frames.js';
import { pluginOf } from './registries.js';

export const theme = createTheme({ colors: { mode: 'dark' } });

function variable(definition, value) {
  const { name, type, includeAll, multi, allValue } = definition;
  if (type === 'textbox') {
    return new TextBoxVariable({ name, value });
  }
  const all = includeAll && value === allValue;
  return new CustomVariable({
    name,
    isMulti: multi,
    includeAll,
    allValue,
    value: all ? ['$__all'] : multi ? [value] : value,
    text: all ? ['All'] : multi ? [value] : value,
  });
}

/** Returns a function that replaces variables in texts, like a dashboard with these values of its variables. */
export function interpolation(dashboard, values, selection) {
  const scene = new SceneFlexLayout({
    children: [],
    $timeRange: new SceneTimeRange({ from: dateTime(selection.from).toISOString(), to: dateTime(selection.to).toISOString() }),
    $variables: new SceneVariableSet({ variables: dashboard.templating.list.map((one) => variable(one, values[one.name])) }),
  });
  locationUtil.initialize({ config: { appSubUrl: '' }, getVariablesUrlParams: () => ({}), getTimeRangeForUrl: () => ({}) });
  return (text, scoped, format) => sceneGraph.interpolate(scene, text, scoped, format);
}

/** Returns all panels of a dashboard, including those in collapsed rows, without the rows. */
export function panelsOf(dashboard) {
  return dashboard.panels.flatMap((panel) => (panel.type === 'row' ? panel.panels : [panel]));
}

/** Returns the options of a panel as Grafana applies them: with defaults, and without options that its plugin does not have. */
export function optionsOf(panel) {
  return getPanelOptionsWithDefaults({
    plugin: pluginOf(panel.type),
    currentOptions: structuredClone(panel.options),
    currentFieldConfig: structuredClone(panel.fieldConfig),
    isAfterPluginChange: false,
  });
}

/** Returns frames whose fields have the options of the panel. */
export function withOptions(panel, frames, replaceVariables) {
  const result = applyFieldOverrides({
    data: frames,
    fieldConfig: optionsOf(panel).fieldConfig,
    fieldConfigRegistry: pluginOf(panel.type).fieldConfigRegistry,
    replaceVariables,
    theme,
    timeZone: 'utc',
  });
  cacheFieldDisplayNames(result);
  return result;
}

/** Returns the frames after the transformations, and the same with the options of the panel. */
export async function prepared(panel, results, replaceVariables) {
  const frames = framesOf(results);
  const transformed = await lastValueFrom(transformDataFrame(panel.transformations ?? [], frames, { interpolate: replaceVariables }));
  return { frames, transformed, shown: withOptions(panel, transformed, replaceVariables) };
}
