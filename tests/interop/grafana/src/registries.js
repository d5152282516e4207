// The registries that Grafana fills when it starts: transformations, options of fields, and the plugins of panels. Their lists are part of
// Grafana's core, which is not published as a package. The processors and transformations are in @grafana/data.

import {
  PanelPlugin,
  booleanOverrideProcessor,
  dataLinksOverrideProcessor,
  displayNameOverrideProcessor,
  identityOverrideProcessor,
  numberOverrideProcessor,
  standardFieldConfigEditorRegistry,
  standardTransformers,
  standardTransformersRegistry,
  stringOverrideProcessor,
  thresholdsOverrideProcessor,
  unitOverrideProcessor,
  valueMappingsOverrideProcessor,
} from '@grafana/data';

const STANDARD = {
  color: identityOverrideProcessor,
  decimals: numberOverrideProcessor,
  displayName: displayNameOverrideProcessor,
  fieldMinMax: booleanOverrideProcessor,
  filterable: booleanOverrideProcessor,
  links: dataLinksOverrideProcessor,
  mappings: valueMappingsOverrideProcessor,
  max: numberOverrideProcessor,
  min: numberOverrideProcessor,
  noValue: stringOverrideProcessor,
  thresholds: thresholdsOverrideProcessor,
  unit: unitOverrideProcessor,
};

// The options of fields of each kind of panel, below `custom`. The check of types compares their values with the types of @grafana/schema.
const HIDE = ['hideFrom'];
const AXIS = ['axisBorderShow', 'axisCenteredZero', 'axisLabel', 'axisPlacement', 'scaleDistribution'];
const CUSTOM = {
  bargauge: [],
  flamegraph: [],
  heatmap: [...HIDE, 'scaleDistribution'],
  stat: [],
  table: ['align', 'cellOptions', 'filterable', 'inspect', 'width'],
  timeseries: [
    ...HIDE,
    ...AXIS,
    ...['drawStyle', 'fillOpacity', 'gradientMode', 'lineInterpolation', 'lineWidth', 'pointSize', 'showPoints', 'spanNulls', 'stacking'],
    'thresholdsStyle',
  ],
};

function option([id, process]) {
  return { id, path: id, name: id, process, override: () => null, editor: () => null, settings: {}, shouldApply: () => true };
}

export function initialize() {
  standardFieldConfigEditorRegistry.setInit(() => Object.entries(STANDARD).map(option));
  standardTransformersRegistry.setInit(() =>
    [...new Set(Object.values(standardTransformers))].map((transformation) => ({
      id: transformation.id,
      name: transformation.name,
      transformation,
      editor: () => null,
    }))
  );
}

const plugins = {};

/** Returns the plugin of a kind of panel, or undefined if no dashboard should have this kind. */
export function pluginOf(kind) {
  if (!plugins[kind] && CUSTOM[kind]) {
    plugins[kind] = new PanelPlugin(() => null);
    plugins[kind].useFieldConfig({
      useCustomConfig: (builder) => {
        for (const name of CUSTOM[kind]) {
          builder.addCustomEditor({ ...option([name, identityOverrideProcessor]), defaultValue: undefined });
        }
      },
    });
    plugins[kind].meta = { id: kind };
  }
  return plugins[kind];
}
